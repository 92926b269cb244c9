#include "backends/nccl/lane.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "backends/nccl/call.hpp"
#include "backends/nccl/work.hpp"
#include "base/log.hpp"

namespace torch::comms::nccl {
namespace {

// How often the library is asked whether something went wrong behind its calls.
constexpr std::chrono::milliseconds kBetweenQuestions{100};

}  // namespace

Lane::Lane(std::string name, std::shared_ptr<Communicator> communicator,
           std::shared_ptr<Device> device, std::function<void()> on_failure,
           std::unique_ptr<tracing::Neighbours> neighbours)
    : name_(std::move(name)),
      communicator_(std::move(communicator)),
      device_(std::move(device)),
      on_failure_(std::move(on_failure)),
      neighbours_(std::move(neighbours)) {}

Lane::Slot Lane::begin(bool on_current_stream) {
  const auto& runtime = device_->runtime();
  const Device::Scope scope(*device_);
  const bool host_runs = device_->host_runs();
  const auto current = device_->current_stream();
  Slot slot{};
  slot.capture = host_runs ? 0 : runtime.capture_of(current);
  // A capture must not fork: nobody might join it again.
  const bool on_current = !host_runs && (on_current_stream || slot.capture != 0);
  slot.stream = on_current ? current : device_->own_stream();
  if (!host_runs && !on_current) {
    const auto now = device_->events().take();
    runtime.record(now.get(), current);
    runtime.wait(slot.stream, now.get());
  }
  if (last_end_ && last_stream_ != slot.stream && last_capture_ == slot.capture)
    runtime.wait(slot.stream, last_end_->get());
  if (slot.capture == 0) {
    slot.started = device_->events().take();
    runtime.record(slot.started.get(), slot.stream);
  }
  return slot;
}

c10::intrusive_ptr<Work> Lane::end(Slot slot, const Call& call, std::vector<c10::Storage> keep) {
  const auto& runtime = device_->runtime();
  const Device::Scope scope(*device_);
  auto end = std::make_shared<gpu::EventPool::Lease>(device_->events().take());
  runtime.record(end->get(), slot.stream);
  last_stream_ = slot.stream;
  last_capture_ = slot.capture;
  last_end_ = end;
  const auto stream = slot.stream;
  const bool captured = slot.capture != 0;
  auto work = c10::make_intrusive<Work>(shared_from_this(), call, std::move(slot), std::move(end),
                                        std::move(keep));
  if (captured) {
    // It runs whenever the graph does, which owns its memory; as a work it is through.
    work->end_->spoil();
    work->setStatus(WorkStatus::COMPLETED);
    work->keep_.clear();
    return work;
  }
  bool was_idle = false;
  {
    const std::lock_guard lock(mutex_);
    was_idle = under_way_.empty();
    work->ticket_.emplace(flight_);
    under_way_.push_back(work);
  }
  if (was_idle) watch(shared_from_this());
  if (device_->host_runs()) {
    // Whoever waits on the host is told at once, instead of at the next look.
    auto* lane = new std::shared_ptr<Lane>(shared_from_this());
    runtime.launch_host(
        stream,
        [](void* argument) {
          const std::unique_ptr<std::shared_ptr<Lane>> it(
              static_cast<std::shared_ptr<Lane>*>(argument));
          (*it)->look(Clock::now());
        },
        lane);
  }
  // A failure that was found before this work was in the list has passed it by.
  if (communicator_->failure())
    work->setStatus(WorkStatus::ERROR, communicator_->failure().error());
  return work;
}

bool Lane::has_ended(const Work& work) noexcept {
  try {
    return device_->runtime().is_done(work.end_->get());
  } catch (const CommError& e) {
    base::log(base::LogLevel::kError, "communicator '" + name_ + "': " + e.what());
    communicator_->give_up({e.code(), e.why(), {.op = work.op_, .comm = name_}});
    return true;
  }
}

void Lane::look(Clock::time_point now) noexcept {
  try {
    // Not the device: a thread that touches one it does not need costs memory there.
    const gpu::CaptureModeGuard mode(device_->runtime());
    Works begun, ended;
    c10::intrusive_ptr<Work> late;
    std::string oldest;  // of what is under way
    bool ask = false;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = under_way_.begin(); at != under_way_.end();) {
        auto& work = **at;
        if (!work.began_) {
          if (!device_->runtime().is_done(work.started_.get())) break;  // nor has any behind it
          work.began_ = now;
          work.started_ = {};
          begun.push_back(*at);
        }
        if (has_ended(work)) {
          ended.push_back(*at);
          at = under_way_.erase(at);
          continue;
        }
        if (!late && now - *work.began_ > work.limit_) late = *at;
        ++at;
      }
      ask = !under_way_.empty() && now >= next_question_;
      if (ask) next_question_ = now + kBetweenQuestions;
      if (ask) oldest = under_way_.front()->op_;
    }
    for (const auto& work : begun) work->setStatus(WorkStatus::INPROGRESS);
    if (!ended.empty()) oldest = ended.front()->op_;
    const Context context{
        .op = late ? late->op_ : oldest, .comm = name_, .rank = communicator_->rank()};
    // Before anything counts as done: what went wrong lets the device go on, too.
    if (ask || !ended.empty()) end_if_wrong(context);
    for (const auto& work : ended) {
      const auto failure = communicator_->failure().error();
      work->setStatus(failure ? WorkStatus::ERROR : WorkStatus::COMPLETED, failure);
      work->keep_.clear();
      work->ticket_.reset();
    }
    if (!ended.empty()) {
      const std::lock_guard lock(mutex_);  // or a waiter between his look and his sleep misses it
      idle_.notify_all();
    }
    if (communicator_->failure()) return;
    if (late) {
      end_all({Errc::kTimeout, late->limit_text_ + whom_it_waits_for(), context}, late.get());
    } else if (ask) {
      if (const auto lost = lost_rank(context)) end_all(*lost, nullptr);
    }
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              "communicator '" + name_ + "' cannot be watched: " + e.what());
  }
}

void Lane::end_if_wrong(const Context& context) {
  const auto error = communicator_->check_async(context);
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const CommError& e) {
    end_all(e, nullptr);
  }
}

std::optional<CommError> Lane::lost_rank(const Context& context) {
  const std::unique_lock lock(seeing_, std::try_to_lock);  // whoever is looking will find it
  if (!lock || !neighbours_ || communicator_->failure()) return std::nullopt;
  const auto ended = neighbours_->first_ended();
  // At the second look: what it did before its end may suffice.
  if (std::exchange(lost_, ended.rank) != ended.rank || ended.rank < 0) return std::nullopt;
  auto where = context;
  where.peer = ended.rank;
  return CommError(Errc::kPeerFailed,
                   "rank " + std::to_string(ended.rank) + " has failed: its process (" +
                       std::to_string(ended.pid) + ") has ended",
                   where);
}

std::string Lane::whom_it_waits_for() {
  const std::lock_guard lock(seeing_);
  if (!neighbours_) return {};
  const auto text = neighbours_->words();
  return text.empty() ? "" : ". As this host's ranks have recorded it: " + text;
}

bool Lane::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [this] { return under_way_.empty() && flight_->idle(); });
}

bool Lane::is_idle() { return wait_idle(std::chrono::milliseconds::zero()); }

bool Lane::is_owed() {
  const std::lock_guard lock(mutex_);
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [](const auto& work) { return !work->async_; });
}

bool Lane::is_watched() noexcept {
  const std::lock_guard lock(mutex_);
  return !under_way_.empty();
}

void Lane::end_all(const CommError& why, const Work* timed_out) {
  if (!communicator_->give_up(why)) return;
  Works all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(under_way_.begin(), under_way_.end());
  }
  const auto reason = communicator_->failure().error();
  for (const auto& work : all)
    work->setStatus(work.get() == timed_out ? WorkStatus::TIMEDOUT : WorkStatus::ERROR, reason);
  on_failure_();
  // The library may take its time, and the watchdog has others to look after.
  std::thread([communicator = communicator_, why] { communicator->abort(why); }).detach();
}

void Lane::fail(const CommError& why, bool blocks) {
  end_all(why, nullptr);
  if (blocks) communicator_->abort(why);
}

}  // namespace torch::comms::nccl
