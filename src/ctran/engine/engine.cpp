#include "ctran/engine/engine.hpp"

#include <algorithm>
#include <new>

#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "ctran/engine/control/collective_fingerprint.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"

namespace torch::comms::ctran {
namespace {

constexpr uint32_t kFirstStream = 16;  // lower streams belong to the context
constexpr unsigned kProgressPerClockRead = 16;
constexpr size_t kMostClaimed = 1024;  // bases of groups that are remembered one by one

std::unique_ptr<CommError> error_of(const Task& task) {
  const auto& group = *task.group;
  return std::make_unique<CommError>(task.failure.code, task.failure.reason,
                                     Context{.op = std::string(task.name),
                                             .comm = group.name,
                                             .rank = group.layout.rank,
                                             .peer = task.failure.peer,
                                             .seq = task.call_number,
                                             .limit = task.timeout.duration});
}

}  // namespace

Engine::Engine(LinkTable links, const LinkContextOptions& options)
    : links_(std::move(links)),
      chooser_(options.chooser),
      eager_connect_ranks_(options.eager_connect_ranks),
      monitor_retry_policy_{.reply_timeout = options.query_timeout},
      interrupt_check_(options.interrupt_check),
      progress_engine_(*this, links_.wait_policy()),
      control_channel_(links_.size()),
      fork_generation_(base::fork_generation()),
      next_proposed_(kFirstStream),
      next_stream_(kFirstStream) {
  claimed_.reserve(kMostClaimed);
}

Engine::~Engine() {
  if (is_forked()) progress_engine_.abandon_thread();
}

void Engine::wait(const Task& task, bool entered) {
  if (!interrupt_check_) return progress_engine_.wait(task.is_done, Deadline::max(), entered);
  constexpr std::chrono::milliseconds kTick{50};
  while (true) {
    progress_engine_.wait(task.is_done, std::chrono::steady_clock::now() + kTick,
                          std::exchange(entered, false));
    if (task.is_done.load(std::memory_order_acquire)) return;
    try {
      interrupt_check_();
    } catch (...) {
      progress_engine_.ensure_thread();
      progress_engine_.poll_once(false);
      throw;
    }
  }
}

bool Engine::is_forked() const noexcept { return base::fork_generation() != fork_generation_; }

void Engine::require_own_process(std::string_view op) const {
  if (is_forked())
    throw CommError(Errc::kForked, "this communicator belongs to the parent process",
                    {.op = std::string(op)});
}

void Engine::open() {
  // The progress thread also answers peers while this rank is in no call.
  if (links_.size() > 1) progress_engine_.ensure_thread();
  const EngineLock lock(*this);
  for (int peer = 0; links_.size() <= eager_connect_ranks_ && peer < links_.size(); ++peer)
    if (peer != links_.rank()) link_to(peer);
}

transport::Transport& Engine::link_to(int context_rank) {
  if (!monitor_links_.empty()) monitor_links_.erase(context_rank);
  bool fresh = false;
  auto& link = links_.link_to(context_rank, &fresh);
  if (!fresh || context_rank == links_.rank()) return link;
  control_channel_.post_receive(context_rank, link);
  for (const auto& [base, group] : groups_)
    if (group->has_announced_leave && group->failure() == nullptr &&
        group->rank_of(context_rank) >= 0)
      send_control(context_rank, leave_message(*group));
  return link;
}

uint32_t Engine::propose_streams(int failed, uint32_t parent) noexcept {
  constexpr int kMostDoublings = 8;
  const uint64_t steps = hash_bytes(&parent, sizeof parent, static_cast<uint64_t>(failed));
  const auto ahead = static_cast<uint32_t>(steps) & ((1u << std::min(failed, kMostDoublings)) - 1u);
  const std::lock_guard lock(streams_mutex_);
  return std::exchange(next_proposed_, next_proposed_ + GroupState::kStreams) +
         ahead * GroupState::kStreams;
}

bool Engine::claim_streams(uint32_t base) noexcept {
  const std::lock_guard lock(streams_mutex_);
  const auto position = std::lower_bound(claimed_.begin(), claimed_.end(), base);
  if (base < next_stream_ || (position != claimed_.end() && *position == base)) return false;
  claimed_.insert(position, base);  // cannot throw: the capacity is reserved
  if (claimed_.size() == kMostClaimed) {
    next_stream_ = claimed_.front() + GroupState::kStreams;
    claimed_.erase(claimed_.begin());
  }
  next_proposed_ = std::max(next_proposed_, base + GroupState::kStreams);
  return true;
}

void Engine::submit(Task* task) noexcept {
  progress_engine_.add_call();
  auto* head = inbox_.load(std::memory_order_relaxed);
  do task->next = head;
  while (!inbox_.compare_exchange_weak(head, task, std::memory_order_seq_cst));
}

void Engine::start(Task* task) noexcept {
  submit(task);
  progress_engine_.poll_once(true);
  if (!is_closed_.load(std::memory_order_seq_cst)) return;
  // The progress thread has stopped, so this thread admits the task.
  progress_engine_.enter();
  drain_inbox();
  progress_engine_.leave();
}

bool Engine::drain_inbox() noexcept {
  if (inbox_.load(std::memory_order_seq_cst) == nullptr) return false;
  auto* newest = inbox_.exchange(nullptr, std::memory_order_seq_cst);
  Task* oldest = nullptr;
  while (newest != nullptr) {
    auto* older = std::exchange(newest->next, oldest);
    oldest = std::exchange(newest, older);
  }
  while (oldest != nullptr) admit(std::exchange(oldest, oldest->next));
  return true;
}

void Engine::admit(Task* task) noexcept {
  auto& group = *task->group;
  if (task->is_queued) task->sequence = group.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  if (group.failure() != nullptr) return complete(task, group.error_for(*task));
  track_deadline(task->deadline);
  if (!task->is_queued) {
    active_.push_back(task);
    if (run_step(task, TaskAction::kBegin)) std::erase(active_, task), complete(task, nullptr);
    return;
  }
  group.queue.push_back(task);
  if (!group.left_members.empty()) fail_for_left_members(group);
  if (group.queue.size() == 1) start_next_collective(group);
}

// Begins the group's next collectives, until one has to wait.
void Engine::start_next_collective(GroupState& group) noexcept {
  while (!group.queue.empty() && group.failure() == nullptr) {
    auto* task = group.queue.front();
    const bool ended = run_step(task, TaskAction::kBegin);
    if (group.failure() != nullptr) return;  // the failure is the task's, too
    if (!ended) return active_.push_back(task);
    group.queue.pop_front();
    complete(task, nullptr);
  }
}

// Returns true if the task has succeeded, or has failed without its group. Any other failure fails
// its group, and the task with it.
bool Engine::run_step(Task* task, TaskAction step) noexcept {
  auto& group = *task->group;
  const int self = group.layout.rank;
  try {
    const auto outcome = step == TaskAction::kBegin ? task->begin() : task->advance();
    if (outcome == Task::TaskStatus::kFailed && task->is_local_failure) return true;
    if (outcome == Task::TaskStatus::kFailed) on_task_failed(task);
    return outcome == Task::TaskStatus::kDone;
  } catch (const CommError& error) {
    fail(group, {error.code(), error.why(), {self}});
  } catch (const std::bad_alloc&) {
    fail(group, {Errc::kResourceExhausted, "out of host memory", {self}});
  }
  return false;
}

bool Engine::advance_all() noexcept {
  bool moved = false, closing = false;
  for (size_t i = 0; i < active_.size();) {
    auto* task = active_[i];
    auto& group = *task->group;
    closing |= group.is_leaving || !group.left_members.empty();
    if (group.failure() != nullptr || group.is_held(*task) ||
        !run_step(task, TaskAction::kAdvance)) {
      ++i;
      continue;
    }
    moved = true;
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    const bool queued = task->is_queued;
    if (queued) group.queue.pop_front();
    const auto keep = task->group;  // completing the task may release the group
    complete(task, nullptr);
    if (queued) start_next_collective(group);
  }
  for (const auto& [base, group] : groups_) {
    if (!closing) break;
    send_leave_if_ready(*group);
    fail_for_left_members(*group);
  }
  return moved;
}

void Engine::complete(Task* task, std::unique_ptr<CommError> error) noexcept {
  // Also if only this call fails.
  if (!error && !task->is_queued) task->group->record_p2p_finished();
  if (!error && task->is_local_failure) error = error_of(*task);
  if (!error && task->is_queued) task->group->last_finished = task->sequence;
  task->close();
  const auto group = task->group->is_leaving ? task->group : nullptr;
  const bool has_listener = task->listener != nullptr;
  task->finish(std::move(error));  // before other threads can see how the task ended
  if (has_listener) {
    const std::lock_guard lock(completions_mutex_);
    completions_.push_back(task);
    has_completions_.store(true, std::memory_order_release);
  }
  progress_engine_.remove_call();
  progress_engine_.notify_completed();
  if (!has_listener) task->release();
  if (group) send_leave_if_ready(*group);
}

void Engine::deliver_completions() noexcept {
  std::vector<Task*> completed;
  {
    const std::lock_guard lock(completions_mutex_);
    completed.swap(completions_);
    has_completions_.store(false, std::memory_order_release);
  }
  for (auto* task : completed) {
    task->listener->on_complete(task->error.get());
    task->release();
  }
}

bool Engine::progress(std::optional<uint32_t> excluded) noexcept {
  bool moved = drain_inbox();
  if (close_reason_) return moved;  // submitted tasks have completed with the error
  if (has_abort_requests_.load(std::memory_order_relaxed)) moved |= check_aborts();
  moved |= progress_links(excluded);
  if (!active_.empty()) moved |= advance_all();
  const bool look = ++progress_calls_ % kProgressPerClockRead == 0;
  if (has_unread_control_ && (look || !moved)) moved |= poll_control();
  if (is_deadline_passed_ || (look && next_deadline_ != Deadline::max()))
    moved |= check_deadlines();
  if (!failed_groups_.empty()) complete_failed(), moved = true;
  return moved;
}

// Called before a thread sleeps.
bool Engine::has_work() noexcept {
  if (inbox_.load(std::memory_order_seq_cst) != nullptr ||
      has_abort_requests_.load(std::memory_order_seq_cst) || has_unread_control_)
    return true;
  const auto now = std::chrono::steady_clock::now();
  for (auto* task : active_) {
    if (!task->is_queued || task->next_check != Deadline::max()) continue;
    task->idle_since = now;
    task->next_check = now + monitor_retry_policy_.initial_interval;
    track_deadline(task->next_check);
  }
  is_deadline_passed_ = now >= next_deadline_;
  return is_deadline_passed_;
}

bool Engine::needs_background_progress() const noexcept {
  return !close_reason_ && std::any_of(links_.active().begin(), links_.active().end(),
                                       [](const auto* link) { return link->has_unsent(); });
}

// Connects the ranks that have connected to this rank first: they may have sent control messages.
bool Engine::accept_incoming_peers() noexcept {
  bool any = false;
  try {
    for (int peer = links_.next_incoming_peer(); peer >= 0; peer = links_.next_incoming_peer())
      link_to(peer), any = true;
  } catch (const CommError& error) {
    base::log(base::LogLevel::kWarning,
              std::string("cannot accept the connection of a peer rank: ") + error.what());
  }
  return any;
}

// Handles control messages, and failed links.
bool Engine::poll_control() noexcept {
  has_unread_control_ = false;
  bool any_received = accept_incoming_peers();
  for (size_t i = 0; i < links_.connected().size(); ++i) {
    const int peer = links_.connected()[i];
    auto& link = links_.link_to(peer);
    ControlMessage notice;
    for (auto polled = control_channel_.poll(peer, link, notice);
         polled != ControlChannel::ControlPollResult::kNothing;
         polled = control_channel_.poll(peer, link, notice)) {
      any_received = true;
      if (polled == ControlChannel::ControlPollResult::kMessage) {
        on_control_message(peer, notice);
        continue;
      }
      if (monitor_links_.contains(peer)) continue;
      const auto* failure = links_.failure(peer);
      if (failure != nullptr)
        on_peer_failed(peer, failure->code, failure->reason);
      else
        on_malformed_message(peer);
    }
  }
  control_channel_.release_sent();
  return any_received;
}

bool Engine::check_deadlines() noexcept {
  const auto now = std::chrono::steady_clock::now();
  is_deadline_passed_ = false;
  if (now < next_deadline_) return false;
  next_deadline_ = Deadline::max();
  const auto check = [&](Task* task) {
    if (task->group->failure() != nullptr || task->group->pending) return;
    if (now < task->deadline) return track_deadline(task->deadline);
    const std::string setting(task->timeout.setting);
    const monitor::AbortReason why{Errc::kTimeout,
                                   task->format_call() + " did not finish within its timeout of " +
                                       std::to_string(task->timeout.duration.count()) + " ms" +
                                       (setting.empty() ? "" : ", " + setting) + "; " +
                                       task->format_pending(),
                                   task->awaited_ranks()};
    start_failure(*task->group, {why}, task->sequence);
  };
  for (auto* task : active_) {
    check(task);
    auto& group = *task->group;
    if (!task->is_queued || group.failure() != nullptr || group.pending) continue;
    for (size_t i = 1; i < group.queue.size(); ++i) check(group.queue[i]);
    if (now >= task->next_check) check_late_call(*static_cast<CollectiveTask*>(task));
    track_deadline(task->next_check);
  }
  for (auto& [base, group] : groups_) {
    auto* monitor = group->existing_monitor();
    if (monitor == nullptr) continue;
    monitor->on_time();
    follow_monitor(*group);
  }
  return true;
}

void Engine::notify_abort_request() noexcept {
  has_abort_requests_.store(true, std::memory_order_seq_cst);
  progress_engine_.poll_once(true);
}

bool Engine::check_aborts() noexcept {
  if (!has_abort_requests_.exchange(false, std::memory_order_seq_cst)) return false;
  for (auto& [base, group] : groups_)
    if (const auto why = group->requested_abort())
      fail(*group, {why->code(), why->why(), why->context().culprits});
  return true;
}

void Engine::add_group(const std::shared_ptr<GroupState>& group) {
  const EngineLock lock(*this);
  groups_[group->base] = group;
  if (close_reason_) group->set_failure(close_reason_->code(), close_reason_->why(), {});
  for (const int member : group->ranks)
    if (const auto* failure = links_.failure(member); failure && !monitor_links_.contains(member))
      on_peer_failed(member, failure->code, failure->reason);
  for (auto next = early_messages_.begin(); next != early_messages_.end();) {
    const auto early = next++;
    if (early->message.base != group->base) continue;
    on_control_message(early->from, early->message);
    early_messages_.erase(early);
  }
  if (!failed_groups_.empty()) complete_failed();
}

void Engine::announce_leave(GroupState& group) noexcept {
  progress_engine_.enter();
  drain_inbox();
  group.is_leaving = true;
  send_leave_if_ready(group);
  progress_engine_.leave();
  progress_engine_.poll_once(true);
}

void Engine::announce_quiesced(GroupState& group) noexcept {
  progress_engine_.enter();
  drain_inbox();
  if (group.failure() == nullptr)
    broadcast(
        group,
        {.kind = ControlMessage::Kind::kQuiesced, .base = group.base, .subject = links_.rank()});
  progress_engine_.leave();
  progress_engine_.poll_once(true);
}

// Sends the leave message once the members know of all that this rank has sent, and again when it
// receives nothing more. Waiting until nothing is open would deadlock: calls of two ranks that
// leave may wait for each other.
void Engine::send_leave_if_ready(GroupState& group) noexcept {
  if (!group.is_leaving || group.failure() != nullptr ||
      (group.has_announced_leave && !group.announced_leave.has_open_receives))
    return;
  bool receives = !group.queue.empty();
  for (const auto* task : active_) {
    if (task->group.get() != &group) continue;
    if (!group.has_announced_leave && task->can_still_send()) return;
    receives = receives || task->can_still_receive();
  }
  if (group.has_announced_leave && receives) return;
  // Other members may wait for this rank, as this rank waits or waited for a member that left.
  if (receives || group.has_failed_for_leave) connect_all(group);
  group.has_announced_leave = true;
  group.announced_leave = {group.sequence.load(std::memory_order_relaxed), receives};
  broadcast(group, leave_message(group));
}

// Members without a connection may wait for this rank: the leave message must reach them.
void Engine::connect_all(const GroupState& group) noexcept {
  for (const int member : group.ranks) try {
      link_to(member);
    } catch (const std::exception& error) {
      base::log(base::LogLevel::kWarning,
                "communicator '" + group.name + "': cannot connect to rank " +
                    std::to_string(member) + " to announce that this rank leaves: " + error.what());
    }
}

ControlMessage Engine::leave_message(const GroupState& group) {
  return {.kind = ControlMessage::Kind::kLeaving,
          .base = group.base,
          .sequence = group.announced_leave.last_collective,
          .has_open_receives = group.announced_leave.has_open_receives};
}

void Engine::remove_group(const std::shared_ptr<GroupState>& group) noexcept {
  progress_engine_.enter();
  drain_inbox();
  check_aborts();  // their reason comes first
  if (group->failure() == nullptr &&
      (!group->has_announced_leave || group->announced_leave.has_open_receives)) {
    group->announced_leave = {group->sequence.load(std::memory_order_relaxed), false};
    broadcast(*group, leave_message(*group));
  }
  if (group->set_failure(Errc::kFinalized, "the communicator was closed", {}))
    failed_groups_.push_back(group.get());
  complete_failed();
  groups_.erase(group->base);
  removed_streams_.add(group->base, group->base + GroupState::kStreams - 1);
  progress_engine_.leave();
}

std::string Engine::describe_links() {
  if (is_forked()) return "";
  const EngineLock lock(*this);
  return links_.describe_links();
}

void Engine::shut_down(const CommError& why) noexcept {
  progress_engine_.stop();
  progress_engine_.enter();
  // A thread that does not see it has submitted its task before drain_inbox().
  is_closed_.store(true, std::memory_order_seq_cst);
  drain_inbox();
  check_aborts();  // their reason comes first
  if (!close_reason_) close_reason_ = why;
  for (auto& [base, group] : groups_)
    if (group->set_failure(close_reason_->code(), close_reason_->why(), {}))
      failed_groups_.push_back(group.get());
  complete_failed();
  links_.close();
  groups_.clear();
  progress_engine_.leave();
}

}  // namespace torch::comms::ctran
