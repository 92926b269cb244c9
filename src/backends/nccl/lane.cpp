#include "backends/nccl/lane.hpp"

#include <algorithm>
#include <utility>

#include "backends/beside/peer_monitor.hpp"
#include "backends/nccl/after_graphs.hpp"
#include "backends/nccl/call.hpp"
#include "backends/nccl/own_kernels.hpp"
#include "backends/nccl/work.hpp"
#include "base/log.hpp"
#include "base/run_apart.hpp"

namespace torch::comms::nccl {
namespace {

// How often the library is asked whether something went wrong behind its calls.
constexpr std::chrono::milliseconds kBetweenQuestions{100};
using common::kLateThreshold;
// How long what a rank did before its end may take to be done here.
constexpr std::chrono::milliseconds kLanePatience{100};
// Until the others know and the library is through, or is left alone.
constexpr std::chrono::seconds kLibraryEnds{2};

// An operation launched so soon after another one on the same stream, in this part of its limit,
// counts its time from the end of that, without an event of its own, which costs a tenth of a
// launch: what a caller puts between in this time, on a device that begins some hundred thousand
// things a second, does not last as long as such a limit.
constexpr int kCloseParts = 200'000;
constexpr std::chrono::seconds kLongLimit{10};

// What stands for operations that nobody has a work of.
class Unseen final : public TorchWork {
 public:
  explicit Unseen(std::exception_ptr error) { setStatus(WorkStatus::TIMEDOUT, std::move(error)); }
  void wait() override { rethrowIfFailed(); }
};

}  // namespace

Lane::Lane(std::string name, std::shared_ptr<Communicator> communicator,
           std::shared_ptr<Device> device, std::unique_ptr<Replays> replays, Alarms alarms,
           std::unique_ptr<PeerMonitor> others)
    : name_(std::move(name)),
      communicator_(std::move(communicator)),
      device_(std::move(device)),
      replays_(std::move(replays)),
      graphs_(std::make_unique<LaneGraphs>(device_)),
      alarms_(std::move(alarms)),
      others_(std::move(others)) {}

Lane::~Lane() {
  if (!own_kernels_ || !is_in_graphs()) return;
  // Graphs may run them at any time.
  own_kernels_->leave();
  keep_for(std::move(graphs_), std::move(own_kernels_));
}

void Lane::use(std::shared_ptr<OwnKernels> kernels, bool apart) {
  if (apart) graphs_->keep_apart();
  own_kernels_ = std::move(kernels);
  kernels_ = own_kernels_.get();
}

Lane::Slot::Slot(Lane& lane, const Call& call, const Where& where)
    : lane_(lane),
      alone_(lane.launching_alone_),
      call_(call),
      device_(*lane.device_),
      current_(lane.device_->current_stream()) {
  const auto now = Clock::now();
  if (lane_.catch_up(now)) lane_.end_if_told([&call] { return call.context(); });
  // Of a graph's launches nobody else asks.
  lane_.end_if_kernels_stopped([&call] { return call.context(); });
  lane_.communicator().failure().check();
  lane_.launching_.op.store(call.op, std::memory_order_relaxed);
  lane_.launching_.limit.store(call.limit, std::memory_order_relaxed);
  lane_.launching_.limit_is_own.store(call.limit_is_own, std::memory_order_relaxed);
  lane_.launching_.number.store(call.number, std::memory_order_relaxed);
  lane_.launching_.until = now + call.limit;
  if (!lane_.watched_ && !lane_.watched_.exchange(true)) lane_.begin_watch();
  auto& device = *lane_.device_;
  const auto& runtime = device.runtime();
  const bool host_runs = device.is_run_by_host(current_);
  capture_ = host_runs ? 0 : runtime.capture_of(current_);
  // A capture must not fork: nobody might join it again.
  const bool on_current = !host_runs && (where.on_current_stream || capture_ != 0);
  stream_ = on_current ? current_ : device.own_stream(where.high_priority);
  if (capture_ != 0) graph_ = lane_.graphs_->graph_of(stream_, capture_, lane_.last_);
  const auto& before = graph_ ? graph_->last : lane_.last_;
  if (before.end && before.stream != stream_) runtime.wait(stream_, before.end.get());
  if (!graph_) lane_.graphs_->begin_call(stream_);
  const auto gap = now - (capture_ == 0 ? std::exchange(lane_.last_launch_, now) : now);
  if (!host_runs && !on_current) {
    // When this and the operation before are done it begins.
    started_ = device.events().acquire();
    runtime.record(started_.get(), current_);
    runtime.wait(stream_, started_.get());
    return;
  }
  if (capture_ != 0) {
    if (!call.ends_itself) begun_ = lane_.replays_->begin(call, stream_, capture_);
    return;
  }
  const bool follows = before.end && before.stream == stream_ && on_current &&
                       gap * kCloseParts < call.limit && call.limit >= kLongLimit;
  if (follows) return;
  started_ = device.events().acquire();
  runtime.record(started_.get(), stream_);
}

void Lane::begin_watch() {
  try {
    add_to_watchdog(shared_from_this());
  } catch (...) {
    watched_ = false;
    throw;
  }
}

Lane::Slot::~Slot() {
  lane_.launching_.until.store(Clock::time_point{}, std::memory_order_release);
  if (begun_) lane_.replays_->give_up(begun_);
}

c10::intrusive_ptr<Work> Lane::Slot::end(Kept keep) {
  auto& device = *lane_.device_;
  const auto& runtime = device.runtime();
  auto end = device.events().acquire();
  runtime.record(end.get(), stream_);
  (graph_ ? graph_->last : lane_.last_) = {stream_, end};
  if (graph_)
    lane_.graphs_->end(*graph_, stream_);
  else
    lane_.graphs_->end_call(stream_);
  auto work = c10::make_intrusive<Work>(*this, std::move(end), std::move(keep));
  if (capture_ != 0) return captured(std::move(work));
  {
    const std::lock_guard lock(lane_.mutex_);
    work->ticket_.emplace(lane_.flight_);
    lane_.under_way_.push_back(work);
  }
  // From here on it is the work's limit, also for a caller that waits for it.
  lane_.launching_.until.store(Clock::time_point{}, std::memory_order_release);
  if (device.is_run_by_host(current_)) {
    // Whoever waits on the host is told at once, instead of at the next look.
    auto* lane = new std::shared_ptr<Lane>(lane_.shared_from_this());
    runtime.launch_host(
        stream_,
        [](void* argument) {
          const std::unique_ptr<std::shared_ptr<Lane>> it(
              static_cast<std::shared_ptr<Lane>*>(argument));
          (*it)->poll(Clock::now());
        },
        lane);
  }
  alone_.unlock();
  // A failure that was found before this work was in the list has passed it by.
  if (lane_.communicator_->failure())
    work->setStatus(WorkStatus::ERROR, lane_.communicator_->failure().error());
  return work;
}

// It runs whenever the graph does, which owns its memory; as a work it is through.
c10::intrusive_ptr<Work> Lane::Slot::captured(c10::intrusive_ptr<Work> work) {
  lane_.replays_->end(begun_, stream_);
  if (call_.ends_itself) lane_.kernels_in_graphs_ = true;
  work->end_.discard();
  work->setStatus(WorkStatus::COMPLETED);
  work->keep_.clear();
  return work;
}

bool Lane::has_ended(const Work& work) noexcept {
  try {
    return device_->runtime().is_done(work.end_.get());
  } catch (const CommError& e) {
    base::log(base::LogLevel::kError, "communicator '" + name_ + "': " + e.what());
    communicator_->cancel({e.code(), e.why(), work.call().context()});
    return true;
  }
}

// Of under_way_, by bisection: each begins when the one before is done.
size_t Lane::count_ended() noexcept {
  if (under_way_.empty() || !has_ended(*under_way_.front())) return 0;
  if (has_ended(*under_way_.back())) return under_way_.size();
  size_t ended = 1, open = under_way_.size() - 1;
  while (ended < open) {
    const size_t middle = (ended + open) / 2;
    if (has_ended(*under_way_[middle]))
      ended = middle + 1;
    else
      open = middle;
  }
  return ended;
}

std::optional<Call> Lane::late_launch(Clock::time_point now) const noexcept {
  const auto until = launching_.until.load();
  if (until == Clock::time_point{} || now <= until) return std::nullopt;
  return Call{launching_.op.load(),
              name_,
              communicator_->rank(),
              launching_.limit.load(),
              launching_.limit_is_own.load(),
              /*async_op=*/false,
              /*ends_itself=*/false,
              /*name=*/{},
              launching_.number.load()};
}

std::optional<Clock::time_point> Lane::slow_launch(Clock::time_point now) const noexcept {
  const auto until = launching_.until.load();
  if (until == Clock::time_point{}) return std::nullopt;
  const auto began = until - launching_.limit.load();
  return now - began < kLateThreshold ? std::nullopt : std::optional(began);
}

// Its operation has ended.
void Lane::settle(Work& work) noexcept {
  const auto failure = communicator_->failure().error();
  if (work.status() == WorkStatus::NOT_STARTED) work.setStatus(WorkStatus::INPROGRESS);
  work.setStatus(failure ? WorkStatus::ERROR : WorkStatus::COMPLETED, failure);
}

bool Lane::catch_up(Clock::time_point now) noexcept {
  const auto unread = now - caught_up_.load(std::memory_order_acquire);
  const bool has_read =
      others_->drain_after_suspend(unread, now - awake_.load(std::memory_order_relaxed));
  // Not before it is so.
  awake_.store(now, std::memory_order_release);
  if (has_read) caught_up_.store(now, std::memory_order_release);
  return has_read;
}

void Lane::look_at(Work& work) noexcept {
  poll(Clock::now());
  if (isTerminal(work.status())) return;
  // Another thread may have taken it off the list, and be about to say so.
  const gpu::CaptureModeGuard mode(device_->runtime());
  if (!has_ended(work)) return;
  catch_up(Clock::now());
  end_if_wrong([&work] { return work.call().context(); });
  end_if_failed();
  settle(work);
}

void Lane::poll(Clock::time_point now) noexcept {
  try {
    // Not the device: a thread that touches one it does not need costs memory there.
    const gpu::CaptureModeGuard mode(device_->runtime());
    catch_up(now);
    Works ended;
    c10::intrusive_ptr<Work> begun, late, oldest;
    std::optional<Replays::Late> late_replay;
    auto slow = slow_launch(now);
    bool ask = false, ask_kernels = false, waits = launching_.until.load() != Clock::time_point{};
    const bool alarmed = others_->has_failure();
    const auto replayed = replays_->look(now);
    if (replayed.has_events) replays_->tell(alarms_.replayed);
    {
      const std::lock_guard lock(mutex_);
      const auto open = under_way_.begin() + static_cast<std::ptrdiff_t>(count_ended());
      ended.assign(under_way_.begin(), open);
      under_way_.erase(under_way_.begin(), open);
      if (!under_way_.empty()) {
        auto& first = under_way_.front();  // no other one can have begun
        if (!first->began_ &&
            (!first->started_ || device_->runtime().is_done(first->started_.get()))) {
          first->began_ = now;
          first->started_ = {};
          begun = first;
        }
        if (first->began_ && now - *first->began_ > first->limit_) late = first;
        if (first->began_ && now - *first->began_ >= kLateThreshold) slow = first->began_;
      }
      if (replayed.late) late_replay_ = replayed.late;
      late_replay = late_replay_;
      waits = waits || !under_way_.empty() || replayed.running;
      if (now >= next_question_) {
        ask = !under_way_.empty() || replayed.running;
        ask_kernels = watches_kernels();
        if (ask || ask_kernels) next_question_ = now + kBetweenQuestions;
      }
      if ((ask || alarmed) && !under_way_.empty()) oldest = under_way_.front();
    }
    if (begun) begun->setStatus(WorkStatus::INPROGRESS);
    if (!ended.empty()) oldest = ended.front();
    const auto context = [&] {
      if (oldest) return oldest->call().context();
      if (launching_.until.load() != Clock::time_point{})
        return Context{.op = std::string(opToString(launching_.op.load())),
                       .comm = name_,
                       .rank = communicator_->rank(),
                       .seq = launching_.number.load()};
      return Context{.comm = name_, .rank = communicator_->rank()};
    };
    // Before anything counts as done: what went wrong lets the device go on, too.
    if (!ended.empty()) catch_up(Clock::now());
    if (ask || !ended.empty())
      end_if_wrong(context);
    else if (ask_kernels && end_if_kernels_stopped(context))
      alarms_.unseen(*c10::make_intrusive<Unseen>(communicator_->failure().error()));
    end_if_failed();
    for (const auto& work : ended) {
      settle(*work);
      work->keep_.clear();
      work->ticket_.reset();
    }
    if (!ended.empty()) {
      const std::lock_guard lock(mutex_);  // or a waiter between his look and his sleep misses it
      idle_.notify_all();
    }
    if (communicator_->failure() || handed_over_) return;
    if (slow) others_->check_mismatch_later(*slow);
    std::optional<CommError> lost;
    if (ask || (waits && alarmed))
      lost = lost_rank(context(), ask);
    else if (ask_kernels && is_in_graphs())
      warn_kernels(context());
    if (lost) {
      // What the kernels themselves found says more.
      end_if_kernels_stopped(context);
      end_all(*lost, nullptr);
    } else if (late)
      end_late(late->call(), late->limit_text(), late.get());
    else if (const auto launch = late_launch(now))
      end_late(*launch, limit_text(*launch, "not launched: the library did not come back"),
               nullptr);
    else if (late_replay)
      end_all_for(*late_replay);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              "communicator '" + name_ + "' cannot be watched: " + e.what());
  }
}

bool Lane::watches_kernels() const noexcept {
  return kernels_in_graphs_ && !replays_->is_stopped() && !communicator_->failure();
}

bool Lane::end_if_kernels_stopped(const std::function<Context()>& context) {
  const auto* const kernels = kernels_.load();
  if (kernels == nullptr) return false;
  auto why = kernels->stopped(context());
  if (!why || communicator_->failure()) return false;
  // Comparing them all names those who are few, and reaches the ranks that wait for nothing.
  if (kernels->disagree()) {
    auto where = why->context();
    where.peer = -1;  // whom the kernels waited for may be right
    where.culprits.clear();
    if (const auto found = others_->find_mismatch(where)) why = found;
  }
  return end_all(*why, nullptr);
}

void Lane::end_if_wrong(const std::function<Context()>& context) {
  end_if_kernels_stopped(context);
  if (others_->has_failure())
    if (const auto why = others_->abort_error(context())) end_all(*why, nullptr);
  const auto error = communicator_->check_async(context);
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    end_all(e, nullptr);
  }
}

std::optional<CommError> Lane::failure(const Context& context) {
  end_if_kernels_stopped([&] { return context; });
  return communicator_->failure().reason();
}

std::optional<CommError> Lane::lost_rank(const Context& context, bool ask) {
  if (auto told = others_->failure(context, kLanePatience)) return told;
  if (!ask) return std::nullopt;
  if (auto* const kernels = kernels_.load())
    if (auto lost = kernels->lost(context)) return lost;
  return others_->find_exited_rank(context);
}

void Lane::warn_kernels(const Context& context) {
  auto* const kernels = kernels_.load();
  if (kernels == nullptr) return;
  if (const auto lost = kernels->lost(context)) kernels->warn(*lost);
}

void Lane::end_if_told(const std::function<Context()>& context) {
  if (!others_->has_failure()) return;
  if (const auto why = others_->failure(context())) end_all(*why, nullptr);
}

bool Lane::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [this] { return under_way_.empty() && flight_->is_idle(); });
}

bool Lane::is_idle() { return wait_idle(std::chrono::milliseconds::zero()); }

bool Lane::is_owed() {
  const std::lock_guard lock(mutex_);
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [](const auto& work) { return !work->async_; });
}

bool Lane::is_active() noexcept {
  // First: a launch that begins after this sees it, and calls watch().
  watched_ = false;
  if (launching_.until.load() == Clock::time_point{}) {
    const std::lock_guard lock(mutex_);
    if (under_way_.empty() && !replays_->is_watching() && !watches_kernels()) return false;
  }
  watched_ = true;
  return true;
}

bool Lane::end_all(const CommError& why, const Work* timed_out) {
  bool first = false;
  const auto library_ended = std::make_shared<std::promise<void>>();
  {
    const std::lock_guard lock(ending_);
    if (handed_over_ || std::exchange(ended_, true)) return false;
    first = communicator_->cancel(why);
    library_ended_ = library_ended->get_future();
  }
  const auto reason = first ? why : communicator_->failure().reason().value_or(why);
  if (auto* const kernels = kernels_.load()) kernels->abort(reason);
  // Before anybody here can leave. Where code of ours is the library, nobody is let go.
  const bool tells =
      communicator_->library().vendor().lookup == nullptr && others_->announce_abort(reason);
  // Before anything of the program's runs, which may wait for it. The library may take its time,
  // and the watchdog has others to look after.
  base::run_apart([communicator = communicator_, others = others_, reason, tells, library_ended] {
    if (tells) others->wait_abort_acknowledged();
    communicator->abort(reason);
    library_ended->set_value();
  });
  // First: whoever is told finds that all has ended.
  alarms_.failure(*this, reason);
  end_works(communicator_->failure().error(), timed_out);
  return first;
}

void Lane::end_if_failed() {
  if (!communicator_->failure()) return;
  {
    const std::lock_guard lock(ending_);
    if (ended_) return;
  }
  if (const auto why = communicator_->failure().reason()) end_all(*why, nullptr);
}

void Lane::end_works(const std::exception_ptr& why, const Work* timed_out) {
  Works all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(under_way_.begin(), under_way_.end());
  }
  for (const auto& work : all)
    work->setStatus(work.get() == timed_out ? WorkStatus::TIMEDOUT : WorkStatus::ERROR, why);
}

void Lane::tell_of_end(const CommError& why) {
  if (handed_over_ || communicator_->failure() || communicator_->handle() == nullptr) return;
  if (others_->announce_abort(why)) others_->wait_abort_acknowledged();
}

bool Lane::hand_over(const CommError& why) {
  {
    const std::lock_guard lock(ending_);
    if (communicator_->failure()) return false;
    handed_over_ = true;
  }
  if (others_->announce_abort(why)) others_->wait_abort_acknowledged();
  if (is_idle()) return true;
  if (auto* const kernels = kernels_.load()) kernels->abort(why);
  end_works(std::make_exception_ptr(why), nullptr);
  return true;
}

bool Lane::end_late(const Call& call, const std::string& text, const Work* timed_out) {
  const auto where = others_->query_progress();
  if (!where) return false;
  return end_all({Errc::kTimeout, text + where->text, call.context(where->culprits)}, timed_out);
}

void Lane::end_all_for(const Replays::Late& late) {
  const Call call{late.op, name_, communicator_->rank(), late.limit, late.limit_is_own, false};
  const auto while_doing = "Graph monitor: collective TIMED OUT for graph " +
                           std::to_string(late.graph) + ": in a replay it was not finished";
  if (end_late(call, limit_text(call, while_doing.c_str()), nullptr))
    alarms_.unseen(*c10::make_intrusive<Unseen>(communicator_->failure().error()));
}

void Lane::end(const CommError& why) { end_all(why, nullptr); }

void Lane::fail(const CommError& why, bool blocks) {
  end(why);
  alarms_.hooks->wait();
  if (!blocks) return;
  std::shared_future<void> ended;
  {
    const std::lock_guard lock(ending_);
    ended = library_ended_;
  }
  if (!ended.valid())
    communicator_->abort(why);
  else if (!AbortHookRunner::in_hook())
    ended.wait_for(kLibraryEnds);
}

void Lane::meet_failure() noexcept {
  met_.store(true);
  alarms_.hooks->wait();
}

}  // namespace torch::comms::nccl
