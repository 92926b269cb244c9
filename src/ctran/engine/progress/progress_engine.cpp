#include "ctran/engine/progress/progress_engine.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"

namespace torch::comms::ctran {
namespace {

using Clock = std::chrono::steady_clock;
using transport::Backoff;

// The progress thread competes with threads that compute, so it sleeps earlier than a waiting
// caller.
constexpr std::chrono::microseconds kThreadSpinTime{50};
constexpr int kProgressPerClockRead = 64;
// After this time without a caller, the progress thread serves the links. A shorter interval would
// make peers wake it between two calls.
constexpr std::chrono::milliseconds kMaxCallerInterval{100};

}  // namespace

ProgressEngine::ProgressEngine(ProgressClient& client, const transport::WaitPolicy& policy)
    : client_(client), policy_(policy), wakeup_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wakeup_event_) throw CommError(Errc::kResourceExhausted, "eventfd: no descriptor left");
}

ProgressEngine::~ProgressEngine() { stop(); }

void ProgressEngine::wait(const std::atomic<bool>& done, Deadline limit, bool entered) {
  const auto is_done = [&] { return done.load(std::memory_order_acquire); };
  if (!entered && is_done()) return;
  record_caller_activity();
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  Backoff backoff(policy_);
  if (entered) run_progress(is_done, limit, backoff);
  while (!is_done()) {
    if (try_lock())
      run_progress(is_done, limit, backoff);
    else if (backoff.step())
      park(is_done, limit);
    if (limit != Deadline::max() && !is_done() && !backoff.is_spinning() && Clock::now() >= limit)
      break;
  }
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  wake_successor();
}

// Makes progress until done. The caller holds the lock; it is released on return.
template <class Done>
void ProgressEngine::run_progress(const Done& done, Deadline limit, Backoff& backoff) {
  if (is_armed_) disarm();
  check_links_if_due();
  int turns = 0;
  while (true) {
    const bool moved = client_.progress();
    const bool has_completions = client_.has_completions();
    if (has_completions || entering_.load(std::memory_order_relaxed) > 0) {
      unlock();
      if (has_completions)
        client_.deliver_completions();
      else
        backoff.pause();
      if (done() || !try_lock()) return;
      continue;
    }
    if (done()) break;
    const bool look = ++turns % kProgressPerClockRead == 0 || (!moved && !backoff.is_spinning());
    if (look && limit != Deadline::max() && Clock::now() >= limit) break;
    if (moved) {
      backoff.reset();
      if (is_armed_) disarm();
    } else if (backoff.step() && !sleep(done, limit, backoff)) {
      return;
    }
  }
  unlock();
}

// The caller holds the lock. The links are armed in one call, and the thread sleeps in the next, so
// that progress() runs in between.
// Returns: false if the lock was released.
template <class Done>
bool ProgressEngine::sleep(const Done& done, Deadline limit, const Backoff& backoff) {
  if (is_polling_.load(std::memory_order_seq_cst)) {
    // The thread that polls wakes up for new messages if the links are armed.
    if (!is_armed_) {
      arm();
      return true;
    }
    const bool gives_way = thread_polls_.load(std::memory_order_seq_cst);
    if (gives_way || client_.next_deadline() < polls_until_) wake_poller();
    unlock();
    if (gives_way)
      backoff.pause();
    else
      park(done, limit);
    return false;
  }
  if (!is_armed_) {
    arm();
    return true;
  }
  is_polling_.store(true, std::memory_order_seq_cst);
  if (!is_quiet_ || client_.has_work() || done()) {
    is_polling_.store(false, std::memory_order_seq_cst);
    disarm();
    backoff.pause();
    return true;
  }
  const auto until = polls_until_ = std::min(limit, client_.next_deadline());
  auto wanted = events();  // other threads may add links after this, and then wake the poller
  unlock();
  poll(wanted, until);
  is_polling_.store(false, std::memory_order_seq_cst);
  return false;
}

// Requires the lock.
ProgressEngine::Events ProgressEngine::events() const noexcept {
  Events wanted;
  wanted.fill({-1, 0, 0});  // ignored
  size_t count = 0;
  wanted[count++] = {wakeup_event_.get(), POLLIN, 0};
  for (const auto* link : client_.links()) wanted[count++] = {link->event_fd(), POLLIN, 0};
  return wanted;
}

void ProgressEngine::poll(Events& wanted, Deadline until) noexcept {
  auto left_ms = transport::kMaxSleep.count();
  if (until != Deadline::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    left_ms = std::clamp<int64_t>(left.count(), 0, left_ms);
  }
  ::poll(wanted.data(), wanted.size(), static_cast<int>(left_ms));
  uint64_t event_count = 0;
  [[maybe_unused]] const auto got = ::read(wakeup_event_.get(), &event_count, sizeof event_count);
}

// Sleeps while another thread makes progress or polls.
template <class Done>
void ProgressEngine::park(const Done& done, Deadline limit) {
  std::unique_lock lock(mutex_);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  const auto free = [&] {
    return done() || (!is_locked_.load(std::memory_order_seq_cst) &&
                      !is_polling_.load(std::memory_order_seq_cst));
  };
  changed_.wait_until(lock, std::min(limit, Clock::now() + transport::kMaxSleep), free);
  parked_.fetch_sub(1, std::memory_order_seq_cst);
}

// A thread that polls meanwhile must arm the links again.
void ProgressEngine::unlock() noexcept {
  const bool rearm = !is_armed_ && is_polling_.load(std::memory_order_seq_cst);
  const bool unfinished = client_.needs_background_progress();
  if (needs_background_progress_.load(std::memory_order_relaxed) != unfinished)
    needs_background_progress_.store(unfinished, std::memory_order_seq_cst);
  is_locked_.store(false, std::memory_order_seq_cst);
  if (rearm) wake_poller();
}

bool ProgressEngine::is_thread_needed() const noexcept {
  return waiting_.load(std::memory_order_seq_cst) == 0 &&
         (calls_.load(std::memory_order_seq_cst) > 0 ||
          needs_background_progress_.load(std::memory_order_seq_cst));
}

// Called when this thread stops making progress: wakes another thread if there is work.
void ProgressEngine::wake_successor() noexcept {
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  if (!is_thread_needed()) return;
  try {
    ensure_thread();  // a caller may leave unsent bytes although the thread was never started
  } catch (const CommError& error) {
    base::log(base::LogLevel::kWarning,
              std::string(
                  "cannot start the progress thread, so unsent messages wait for the next call: ") +
                  error.why());
  }
  if (thread_sleeps_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock(mutex_);
    thread_needed_.notify_one();
  }
}

void ProgressEngine::notify_completed() noexcept {
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  if (is_polling_.load(std::memory_order_seq_cst) && !thread_polls_.load(std::memory_order_seq_cst))
    wake_poller();
}

void ProgressEngine::poll_once(bool has_new_work) {
  if (try_lock()) {
    record_caller_activity();
    if (is_armed_) disarm();
    check_links_if_due();
    client_.progress();
    const bool has_completions = client_.has_completions();
    unlock();
    if (has_completions) client_.deliver_completions();
    wake_successor();
  } else if (has_new_work && is_polling_.load(std::memory_order_seq_cst)) {
    wake_poller();
  }
}

void ProgressEngine::drain_incoming() noexcept {
  constexpr int kMostTurns = 16;
  enter();
  for (int turns = 0; turns < kMostTurns && client_.progress();) ++turns;
  leave();
}

void ProgressEngine::enter() noexcept {
  record_caller_activity();
  entering_.fetch_add(1, std::memory_order_relaxed);
  const Backoff backoff(policy_);
  while (!try_lock()) backoff.pause();
  entering_.fetch_sub(1, std::memory_order_relaxed);
  if (is_armed_) disarm();
  check_links_if_due();
}

bool ProgressEngine::try_enter() noexcept {
  if (is_polling_.load(std::memory_order_seq_cst) || !try_lock()) return false;
  record_caller_activity();
  if (is_armed_) disarm();
  check_links_if_due();
  return true;
}

void ProgressEngine::leave() noexcept {
  const bool has_completions = client_.has_completions();
  unlock();
  if (has_completions) client_.deliver_completions();
  wake_successor();
}

void ProgressEngine::check_links() noexcept {
  is_link_check_due_.store(false, std::memory_order_relaxed);
  for (auto* link : client_.links()) link->poll_all_next();
  client_.progress();
}

void ProgressEngine::arm() noexcept {
  is_armed_ = is_quiet_ = true;
  for (auto* link : client_.links()) is_quiet_ = link->prepare_sleep() && is_quiet_;
}

void ProgressEngine::disarm() noexcept {
  is_armed_ = false;
  for (auto* link : client_.links()) link->finish_sleep();
}

void ProgressEngine::wake_poller() noexcept {
  const uint64_t one = 1;
  // The write only fails if the event is already set.
  [[maybe_unused]] const auto written = ::write(wakeup_event_.get(), &one, sizeof one);
}

void ProgressEngine::ensure_thread() {
  std::call_once(thread_started_, [this] {
    try {
      thread_ = std::make_unique<std::thread>([this] { run_thread(); });
    } catch (const std::system_error& error) {
      throw CommError(Errc::kResourceExhausted,
                      std::string("cannot start the progress thread: ") + error.what());
    }
  });
}

void ProgressEngine::run_thread() {
  const auto stops = [this] { return stopping_.load(std::memory_order_seq_cst); };
  const auto activity = [this] { return caller_activity_.load(std::memory_order_relaxed); };
  while (!stops()) {
    const auto seen = activity();
    bool wanted = false;
    {
      std::unique_lock lock(mutex_);
      thread_sleeps_.store(true, std::memory_order_seq_cst);
      wanted = thread_needed_.wait_until(lock, Clock::now() + kMaxCallerInterval,
                                         [&] { return stops() || is_thread_needed(); });
      thread_sleeps_.store(false, std::memory_order_seq_cst);
    }
    if (wanted)
      run_progress_until([&] { return stops() || !is_thread_needed(); });
    else if (activity() == seen)
      run_progress_until([&] {
        return stops() || waiting_.load(std::memory_order_seq_cst) > 0 || activity() != seen;
      });
    else
      is_link_check_due_.store(true, std::memory_order_relaxed);
    wake_successor();
  }
}

// Runs on the progress thread, which polls the links while there is nothing to do.
template <class Done>
void ProgressEngine::run_progress_until(const Done& done) {
  auto policy = policy_;
  policy.spins = 0;
  policy.awake_time = policy.max_awake_time = kThreadSpinTime;
  policy.core_balancer = nullptr;  // the balancer records the cores of callers only
  policy.yield_cost = &thread_yields_;
  Backoff backoff(policy);
  while (!done()) {
    thread_polls_.store(true, std::memory_order_seq_cst);
    if (try_lock())
      run_progress(done, Deadline::max(), backoff);
    else
      backoff.pause();
    thread_polls_.store(false, std::memory_order_seq_cst);
  }
}

void ProgressEngine::stop() noexcept {
  stopping_.store(true, std::memory_order_seq_cst);
  if (!thread_) return;
  {
    const std::lock_guard lock(mutex_);
    thread_needed_.notify_all();
  }
  wake_poller();
  thread_->join();
  thread_.reset();
}

// The child's copies of thread and mutex are unusable and must not be destroyed.
void ProgressEngine::abandon_thread() noexcept { static_cast<void>(thread_.release()); }

}  // namespace torch::comms::ctran
