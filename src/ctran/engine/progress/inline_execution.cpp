#include <new>

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"

// A synchronous call that has its engine to itself: without what others need to meet it, its peers
// being about to come to it, too. Most small ones end here.
namespace torch::comms::ctran {
namespace {

constexpr unsigned kCallsPerProgress = 64;
constexpr int kPollsPerProgress = 16;
// Input and output. Over it ranks that share cores are better off handing messages over in parts:
// all_reduce of 256 KB among four ranks on two cores takes 88 us instead of 134 to 159, of 128 KB
// in a window 41 instead of 62.
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

// Takes the lock for a call, where that is all there is to do; now and then after a turn, so that
// peers are heard, but not those of its messages that are there already. False: without it.
bool Engine::try_enter_inline(const GroupState& group) noexcept {
  if (!progress_engine_.try_enter()) return false;
  if (++inline_calls_ % kCallsPerProgress == 0) progress(group.base + GroupState::kCollectives);
  if (can_run_inline(group)) return true;
  progress_engine_.leave();
  return false;
}

// Nothing else is under way or to be looked at.
bool Engine::can_run_inline(const GroupState& group) const noexcept {
  return !close_reason_ && active_.empty() && group.queue.empty() && !group.is_failing() &&
         group.left_members.empty() && group.deferred_queries.empty() &&
         group.failure() == nullptr && failed_groups_.empty() && !has_pending_requests();
}

// Another thread has something for the next turn.
bool Engine::has_pending_requests() const noexcept {
  return inbox_.load(std::memory_order_relaxed) != nullptr ||
         has_abort_requests_.load(std::memory_order_relaxed);
}

// Until look(bool moved), asked before and after the links are, says that all is done: true. False:
// it takes too long, or others want the lock. `often`: looks for each turn of the links.
template <class Look>
bool Engine::poll_until_done(const GroupState& group, int often, const Look& look) {
  const auto goes_on = [&] {
    return group.failure() == nullptr && !group.is_failing() && !has_pending_requests() &&
           !progress_engine_.is_contended();
  };
  const auto& policy = links_.wait_policy();
  // Where every rank has a core, what is awaited is on its way. No pauses: a look more often would
  // keep its writer from it.
  for (int looks = 1; looks <= policy.spins * often && goes_on(); ++looks)
    if (look(false) || (looks % often == 0 && progress_links() && look(true))) return true;
  // Where they share cores, it is there when this one comes back.
  auto later = policy;
  later.spins = 0;
  transport::Backoff pace(later);
  while (goes_on() && !pace.step()) {
    if (look(false)) return true;
    if (!progress_links()) continue;
    pace.reset();
    if (look(true)) return true;
  }
  return false;
}

bool Engine::progress_links(std::optional<uint32_t> but) noexcept {
  bool arrived = false;
  for (auto* link : links_.active())
    arrived |= but ? link->progress_except(*but) : link->progress();
  has_unread_control_ |= arrived;
  return arrived;
}

// It is in flight from here on, or has failed.
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

// True: it has ended; else it is in flight, or has failed.
bool Engine::run_inline(Task* task) noexcept {
  auto& group = *task->group;
  task->sequence = group.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  group.queue.push_back(task);
  bool ended = run_step(task, TaskAction::kBegin);
  if (group.mismatch) send_own_fingerprint(group);
  ended = ended || poll_until_done(group, 1, [&](bool moved) {
            return moved && run_step(task, TaskAction::kAdvance);
          });
  ended ? complete_inline(task) : enqueue(task);
  return ended;
}

bool Engine::run_fast_path(const std::shared_ptr<GroupState>& membership, const EngineCall& call,
                           Task*& rest) {
  auto& group = *membership;
  if (is_forked() || bytes_of(call) > kFastPathMaxBytes || !try_enter_inline(group)) return false;
  FastPath* express = nullptr;
  try {
    express = group.fast_path(call);
  } catch (const CommError&) {  // the usual way meets it, too
  } catch (const std::bad_alloc&) {
  }
  const uint64_t number = group.sequence.load(std::memory_order_relaxed) + 1;
  if (express == nullptr ||
      !express->begin(call, tag_of(express->plan()->signature(), number, group.base))) {
    progress_engine_.leave();
    return false;
  }
  group.sequence.store(number, std::memory_order_relaxed);
  group.record_call(express->plan(), number);
  try {
    const bool ended = express->advance() || poll_until_done(group, kPollsPerProgress, [&](bool) {
                         return express->advance();
                       });
    if (ended) {
      group.last_finished = number;
      progress_engine_.leave();
      return true;
    }
    return resume_as_task(membership, call, *express, rest);
  } catch (const std::bad_alloc&) {
    fail(group, Errc::kResourceExhausted, "no memory left", {group.layout.rank});
    progress_engine_.leave();
    throw CommError(Errc::kResourceExhausted, "no memory left",
                    {.op = std::string(call.name), .comm = group.name, .seq = number});
  }
}

// With the task that run_fast_path() has done without, and with the lock, as run_inline() ends.
bool Engine::resume_as_task(const std::shared_ptr<GroupState>& group, const EngineCall& call,
                            const FastPath& express, Task*& rest) {
  auto* task = task_pool_.acquire_collective();
  rest = task;
  try {
    task->group = group;
    task->prepare(call, express.plan());
  } catch (...) {
    task->release();  // the engine's reference; the other is the caller's
    throw;
  }
  task->resume_from(express);
  task->name = call.name;
  task->timeout = call.timeout;
  task->sequence = group->sequence.load(std::memory_order_relaxed);
  group->queue.push_back(task);
  const bool ended = run_step(task, TaskAction::kBegin);
  if (group->mismatch) send_own_fingerprint(*group);
  if (!ended) return enqueue(task), false;
  complete_inline(task);
  progress_engine_.leave();
  return true;
}

}  // namespace torch::comms::ctran
