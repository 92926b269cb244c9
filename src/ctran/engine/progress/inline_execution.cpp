#include <new>

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"

// Inline execution: a synchronous call runs on its caller's thread while nothing else is in flight.
// It skips the queues that other threads would need, because its peers are about to make the same
// call. Most small calls end here.
namespace torch::comms::ctran {
namespace {

constexpr unsigned kCallsPerProgress = 64;
constexpr int kPollsPerProgress = 16;
// Input and output together. Above this size, ranks that share cores are faster if they exchange
// messages in parts. Measured with four ranks on two cores: all_reduce of 256 KB takes 88 us
// instead of 134 to 159, of 128 KB in a window 41 instead of 62.
constexpr uint64_t kFastPathMaxBytes = uint64_t{200} * 1024;  // bytes

uint64_t bytes_of(const EngineCall& call) noexcept {
  uint64_t bytes = 0;
  for (const auto& piece : call.input) bytes += piece.size();
  for (const auto& piece : call.output) bytes += piece.size();
  return bytes;
}

}  // namespace

void Engine::run(Task* task) {
  if (task->is_queued && try_enter_inline(*task->group)) {
    if (!run_inline(task)) return wait(*task, true);
    return progress_engine_.leave();
  }
  task->deadline = deadline_after(task->timeout.remaining());
  submit(task);
  wait(*task);
}

// Takes the lock for a call if nothing else is in flight. Every kCallsPerProgress calls it makes
// progress first, so that control messages of peers are handled; messages of this call that have
// arrived stay on their stream.
// Returns: false without the lock.
bool Engine::try_enter_inline(const GroupState& group) noexcept {
  if (!progress_engine_.try_enter()) return false;
  if (++inline_calls_ % kCallsPerProgress == 0) progress(group.base + GroupState::kCollectives);
  if (can_run_inline(group)) return true;
  progress_engine_.leave();
  return false;
}

// Returns: whether nothing else is in flight or pending.
bool Engine::can_run_inline(const GroupState& group) const noexcept {
  return !close_reason_ && active_.empty() && group.queue.empty() && !group.pending &&
         group.left_members.empty() && group.failure() == nullptr && failed_groups_.empty() &&
         !has_pending_requests();
}

// Returns: whether another thread has left work for the next progress().
bool Engine::has_pending_requests() const noexcept {
  return inbox_.load(std::memory_order_relaxed) != nullptr ||
         has_abort_requests_.load(std::memory_order_relaxed);
}

// Polls until look(bool moved) returns true. look() is called before and after progress on the
// links. `often`: number of looks per progress on the links.
// Returns: false if it takes too long, or if other threads want the lock.
template <class Look>
bool Engine::poll_until_done(const GroupState& group, int often, const Look& look) {
  const auto goes_on = [&] {
    return group.failure() == nullptr && !group.pending && !has_pending_requests() &&
           !progress_engine_.is_contended();
  };
  const auto& policy = links_.wait_policy();
  // If every rank has a core, the awaited message is on its way. There are no pauses. Looking more
  // often would keep its writer from the cache line.
  for (int looks = 1; looks <= policy.spins * often && goes_on(); ++looks)
    if (look(false) || (looks % often == 0 && progress_links() && look(true))) return true;
  // If ranks share cores, the message is there when this thread runs again.
  auto later = policy;
  later.spins = 0;
  transport::Backoff backoff(later);
  while (goes_on() && !backoff.step()) {
    if (look(false)) return true;
    if (!progress_links()) continue;
    backoff.reset();
    if (look(true)) return true;
  }
  return false;
}

bool Engine::progress_links(std::optional<uint32_t> excluded) noexcept {
  bool arrived = false;
  for (auto* link : links_.active())
    arrived |= excluded ? link->progress_except(*excluded) : link->progress();
  has_unread_control_ |= arrived;
  return arrived;
}

// Leaves the task in flight, unless its group has failed.
void Engine::enqueue(Task* task) noexcept {
  progress_engine_.add_call();
  task->deadline = deadline_after(task->timeout.remaining());
  track_deadline(task->deadline);
  if (task->group->failure() == nullptr) active_.push_back(task);
}

void Engine::complete_inline(Task* task) noexcept {
  task->group->queue.pop_front();
  task->group->last_finished = task->sequence;
  task->close();
  task->finish(nullptr);
  task->release();
}

// Returns: true if the task has completed; else it is in flight or has failed.
bool Engine::run_inline(Task* task) noexcept {
  auto& group = *task->group;
  task->sequence = group.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  group.queue.push_back(task);
  bool ended = run_step(task, TaskAction::kBegin);
  ended = ended || poll_until_done(group, 1, [&](bool moved) {
            return moved && run_step(task, TaskAction::kAdvance);
          });
  ended ? complete_inline(task) : enqueue(task);
  return ended;
}

bool Engine::run_fast_path(const std::shared_ptr<GroupState>& shared_group, const EngineCall& call,
                           Task*& rest) {
  auto& group = *shared_group;
  if (is_forked() || bytes_of(call) > kFastPathMaxBytes || !try_enter_inline(group)) return false;
  FastPath* fast_path = nullptr;
  try {
    fast_path = group.fast_path(call);
  } catch (const CommError&) {  // the task reports the error
  } catch (const std::bad_alloc&) {
  }
  const uint64_t number = group.sequence.load(std::memory_order_relaxed) + 1;
  if (fast_path == nullptr ||
      !fast_path->begin(call, tag_of(fast_path->plan()->signature(), number, group.base))) {
    progress_engine_.leave();
    return false;
  }
  group.sequence.store(number, std::memory_order_relaxed);
  group.record_call(fast_path->plan(), number);
  try {
    const bool ended = fast_path->advance() || poll_until_done(group, kPollsPerProgress, [&](bool) {
                         return fast_path->advance();
                       });
    if (ended) {
      group.last_finished = number;
      progress_engine_.leave();
      return true;
    }
    return resume_as_task(shared_group, call, *fast_path, rest);
  } catch (const std::bad_alloc&) {
    fail(group, {Errc::kResourceExhausted, "out of host memory", {group.layout.rank}});
    progress_engine_.leave();
    throw CommError(Errc::kResourceExhausted, "out of host memory",
                    {.op = std::string(call.name), .comm = group.name, .seq = number});
  }
}

// Continues a collective of the fast path as a task. The caller holds the lock.
// Returns: like run_inline(): true if the collective has completed; the lock is released then.
bool Engine::resume_as_task(const std::shared_ptr<GroupState>& group, const EngineCall& call,
                            const FastPath& fast_path, Task*& rest) {
  auto* task = task_pool_.acquire_collective();
  rest = task;
  try {
    task->group = group;
    task->prepare(call, fast_path.plan());
  } catch (...) {
    task->release();  // the engine's reference; the caller holds the other
    throw;
  }
  task->resume_from(fast_path);
  task->name = call.name;
  task->timeout = call.timeout;
  task->sequence = group->sequence.load(std::memory_order_relaxed);
  group->queue.push_back(task);
  const bool ended = run_step(task, TaskAction::kBegin);
  if (!ended) return enqueue(task), false;
  complete_inline(task);
  progress_engine_.leave();
  return true;
}

}  // namespace torch::comms::ctran
