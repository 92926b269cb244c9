#include "ctran/engine/progress.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include <torchcomms/base/error.hpp>

#include "base/log.hpp"

namespace torch::comms::ctran {
namespace {

using Clock = std::chrono::steady_clock;
using transport::Backoff;

// The thread competes with whoever computes: it sleeps earlier than a caller who waits.
constexpr std::chrono::microseconds kThreadAwake{50};
constexpr int kTurnsPerClock = 64;
// Without a visit for so long, the thread attends to what comes in. Shorter ones would make peers
// wake it up between two calls.
constexpr std::chrono::milliseconds kUnattended{100};

}  // namespace

Progress::Progress(Job& job, const transport::WaitPolicy& policy)
    : job_(job), policy_(policy), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_) throw CommError(Errc::kResourceExhausted, "eventfd: no descriptor left");
}

Progress::~Progress() { stop(); }

void Progress::wait(const std::atomic<bool>& done, Deadline limit, bool entered) {
  const auto is_done = [&] { return done.load(std::memory_order_acquire); };
  if (!entered && is_done()) return;
  note_visit();
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  Backoff pace(policy_);
  if (entered) drive(is_done, limit, pace);
  while (!is_done()) {
    if (try_lock())
      drive(is_done, limit, pace);
    else if (pace.step())
      park(is_done, limit);
    if (limit != Deadline::max() && !is_done() && !pace.is_spinning() && Clock::now() >= limit)
      break;
  }
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  hand_over();
}

// Moves everything until done; with the lock on entry, without it on return.
template <class Done>
void Progress::drive(const Done& done, Deadline limit, Backoff& pace) {
  if (armed_) disarm();
  look_if_due();
  int turns = 0;
  while (true) {
    const bool moved = job_.turn();
    const bool endings = job_.has_endings();
    if (endings || entering_.load(std::memory_order_relaxed) > 0) {
      unlock();
      if (endings)
        job_.tell_endings();
      else
        pace.pause();
      if (done() || !try_lock()) return;
      continue;
    }
    if (done()) break;
    const bool look = ++turns % kTurnsPerClock == 0 || (!moved && !pace.is_spinning());
    if (look && limit != Deadline::max() && Clock::now() >= limit) break;
    if (moved) {
      pace.reset();
      if (armed_) disarm();
    } else if (pace.step() && !sleep(done, limit, pace)) {
      return;
    }
  }
  unlock();
}

// With the lock on entry; false: without it on return. Announced in one call, done in the next, so
// that a turn lies between.
template <class Done>
bool Progress::sleep(const Done& done, Deadline limit, const Backoff& pace) {
  if (polling_.load(std::memory_order_seq_cst)) {
    // Whoever polls wakes up for what arrives, if the links were told.
    if (!armed_) {
      arm();
      return true;
    }
    const bool gives_way = thread_polls_.load(std::memory_order_seq_cst);
    if (gives_way || job_.next_deadline() < polls_until_) ring();
    unlock();
    if (gives_way)
      pace.pause();
    else
      park(done, limit);
    return false;
  }
  if (!armed_) {
    arm();
    return true;
  }
  polling_.store(true, std::memory_order_seq_cst);
  if (!quiet_ || job_.has_news() || done()) {
    polling_.store(false, std::memory_order_seq_cst);
    disarm();
    pace.pause();
    return true;
  }
  const auto until = polls_until_ = std::min(limit, job_.next_deadline());
  auto wanted = events();  // others may add links from here on; then they ring
  unlock();
  poll(wanted, until);
  polling_.store(false, std::memory_order_seq_cst);
  return false;
}

// With the lock.
Progress::Events Progress::events() const noexcept {
  Events wanted;
  wanted.fill({-1, 0, 0});  // ignored
  size_t count = 0;
  wanted[count++] = {bell_.get(), POLLIN, 0};
  for (const auto* link : job_.links()) wanted[count++] = {link->event_fd(), POLLIN, 0};
  return wanted;
}

void Progress::poll(Events& wanted, Deadline until) noexcept {
  auto left_ms = transport::kMaxSleep.count();
  if (until != Deadline::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    left_ms = std::clamp<int64_t>(left.count(), 0, left_ms);
  }
  ::poll(wanted.data(), wanted.size(), static_cast<int>(left_ms));
  uint64_t rung = 0;
  [[maybe_unused]] const auto got = ::read(bell_.get(), &rung, sizeof rung);
}

// Another thread drives, or polls for all.
template <class Done>
void Progress::park(const Done& done, Deadline limit) {
  std::unique_lock lock(mutex_);
  parked_.fetch_add(1, std::memory_order_seq_cst);
  const auto free = [&] {
    return done() ||
           (!busy_.load(std::memory_order_seq_cst) && !polling_.load(std::memory_order_seq_cst));
  };
  changed_.wait_until(lock, std::min(limit, Clock::now() + transport::kMaxSleep), free);
  parked_.fetch_sub(1, std::memory_order_seq_cst);
}

// Whoever polls meanwhile must tell the links again that it sleeps.
void Progress::unlock() noexcept {
  const bool rearm = !armed_ && polling_.load(std::memory_order_seq_cst);
  const bool unfinished = job_.needs_turns();
  if (unfinished_.load(std::memory_order_relaxed) != unfinished)
    unfinished_.store(unfinished, std::memory_order_seq_cst);
  busy_.store(false, std::memory_order_seq_cst);
  if (rearm) ring();
}

bool Progress::wants_thread() const noexcept {
  return waiting_.load(std::memory_order_seq_cst) == 0 &&
         (calls_.load(std::memory_order_seq_cst) > 0 ||
          unfinished_.load(std::memory_order_seq_cst));
}

// This thread leaves: somebody else goes on, if there is anything.
void Progress::hand_over() noexcept {
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  if (!wants_thread()) return;
  try {
    need_thread();  // a caller may have left bytes behind without ever having started one
  } catch (const CommError& error) {
    base::log(base::LogLevel::kWarning,
              std::string("what is left to send waits for the next call: ") + error.why());
  }
  if (thread_sleeps_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock(mutex_);
    thread_needed_.notify_one();
  }
}

void Progress::ended() noexcept {
  if (parked_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  if (polling_.load(std::memory_order_seq_cst) && !thread_polls_.load(std::memory_order_seq_cst))
    ring();
}

void Progress::glance(bool news) {
  if (try_lock()) {
    note_visit();
    if (armed_) disarm();
    look_if_due();
    job_.turn();
    const bool endings = job_.has_endings();
    unlock();
    if (endings) job_.tell_endings();
    hand_over();
  } else if (news && polling_.load(std::memory_order_seq_cst)) {
    ring();
  }
}

void Progress::catch_up() noexcept {
  constexpr int kMostTurns = 16;
  enter();
  for (int turns = 0; turns < kMostTurns && job_.turn();) ++turns;
  leave();
}

void Progress::enter() noexcept {
  note_visit();
  entering_.fetch_add(1, std::memory_order_relaxed);
  const Backoff pace(policy_);
  while (!try_lock()) pace.pause();
  entering_.fetch_sub(1, std::memory_order_relaxed);
  if (armed_) disarm();
  look_if_due();
}

bool Progress::try_enter() noexcept {
  if (polling_.load(std::memory_order_seq_cst) || !try_lock()) return false;
  note_visit();
  if (armed_) disarm();
  look_if_due();
  return true;
}

void Progress::leave() noexcept {
  const bool endings = job_.has_endings();
  unlock();
  if (endings) job_.tell_endings();
  hand_over();
}

void Progress::look() noexcept {
  look_due_.store(false, std::memory_order_relaxed);
  for (auto* link : job_.links()) link->poll_all_next();
  job_.turn();
}

void Progress::arm() noexcept {
  armed_ = quiet_ = true;
  for (auto* link : job_.links()) quiet_ = link->prepare_sleep() && quiet_;
}

void Progress::disarm() noexcept {
  armed_ = false;
  for (auto* link : job_.links()) link->finish_sleep();
}

void Progress::ring() noexcept {
  const uint64_t one = 1;
  // It only fails where the bell rings already.
  [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
}

void Progress::need_thread() {
  std::call_once(thread_started_, [this] {
    try {
      thread_ = std::make_unique<std::thread>([this] { run_thread(); });
    } catch (const std::system_error& error) {
      throw CommError(Errc::kResourceExhausted, std::string("no thread: ") + error.what());
    }
  });
}

void Progress::run_thread() {
  const auto stops = [this] { return stopping_.load(std::memory_order_seq_cst); };
  const auto visits = [this] { return visits_.load(std::memory_order_relaxed); };
  while (!stops()) {
    const auto seen = visits();
    bool wanted = false;
    {
      std::unique_lock lock(mutex_);
      thread_sleeps_.store(true, std::memory_order_seq_cst);
      wanted = thread_needed_.wait_until(lock, Clock::now() + kUnattended,
                                         [&] { return stops() || wants_thread(); });
      thread_sleeps_.store(false, std::memory_order_seq_cst);
    }
    if (wanted)
      drive_until([&] { return stops() || !wants_thread(); });
    else if (visits() == seen)
      drive_until([&] {
        return stops() || waiting_.load(std::memory_order_seq_cst) > 0 || visits() != seen;
      });
    else
      look_due_.store(true, std::memory_order_relaxed);
    hand_over();
  }
}

// On the own thread; it polls the links where there is nothing to do.
template <class Done>
void Progress::drive_until(const Done& done) {
  auto policy = policy_;
  policy.spins = 0;
  policy.awake_time = policy.max_awake_time = kThreadAwake;
  policy.core_balancer = nullptr;  // it says where the callers are
  policy.yield_cost = &thread_yields_;
  Backoff pace(policy);
  while (!done()) {
    thread_polls_.store(true, std::memory_order_seq_cst);
    if (try_lock())
      drive(done, Deadline::max(), pace);
    else
      pace.pause();
    thread_polls_.store(false, std::memory_order_seq_cst);
  }
}

void Progress::stop() noexcept {
  stopping_.store(true, std::memory_order_seq_cst);
  if (!thread_) return;
  {
    const std::lock_guard lock(mutex_);
    thread_needed_.notify_all();
  }
  ring();
  thread_->join();
  thread_.reset();
}

// The copies of thread and mutex are of no use here, and must not be destroyed.
void Progress::abandon() noexcept { static_cast<void>(thread_.release()); }

}  // namespace torch::comms::ctran
