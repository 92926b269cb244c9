#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"

// A synchronous call that has its engine to itself.
namespace torch::comms::ctran {
namespace {

constexpr unsigned kCallsPerTurn = 16;

}  // namespace

void Engine::run(Task* task) {
  if (task->queued && progress_.try_enter()) {
    const bool alone = is_alone(*task);
    if (alone && !run_alone(task)) return wait(*task, true);
    progress_.leave();
    if (alone) return;
  }
  task->deadline = deadline_after(task->limit);
  submit(task);
  wait(*task);
}

// Nothing else is under way or to be looked at. Now and then it is not, so that peers are heard.
bool Engine::is_alone(const Task& task) noexcept {
  const auto& group = *task.group;
  return !closed_ && active_.empty() && group.queue.empty() && !group.stands_still() &&
         group.departed.empty() && group.failure() == nullptr && dying_.empty() && !is_wanted() &&
         ++alone_ % kCallsPerTurn != 0;
}

// Another thread has something for the next turn.
bool Engine::is_wanted() const noexcept {
  return inbox_.load(std::memory_order_relaxed) != nullptr ||
         aborts_.load(std::memory_order_relaxed);
}

// A collective whose peers are about to come to it, too, without what others need to meet it: most
// small ones end here. True: it has ended; else it is in flight, or has failed.
bool Engine::run_alone(Task* task) noexcept {
  auto& group = *task->group;
  task->sequence = group.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  group.queue.push_back(task);
  const auto& policy = links_.policy();
  // Of many small messages most of the time goes to their requests; of one, to its way.
  if (policy.spins == 0 || group.size() > 2) task->hurry();
  bool ended = has_ended(task, Step::kBegin);
  if (group.disagreement) answer(group);
  const auto goes_on = [&] {
    return !ended && group.failure() == nullptr && !group.stands_still() && !is_wanted() &&
           !progress_.is_contended();
  };
  const auto look = [&] {
    bool arrived = false;
    for (auto* link : links_.active()) arrived |= link->progress();
    unheard_ |= arrived;
    if (arrived || task->looks_itself()) ended = has_ended(task, Step::kAdvance);
    return arrived;
  };
  // Where every rank has a core, what is awaited is on its way. No pauses: links look at their
  // memory seldom enough, a look more often would keep its writer from it.
  for (int turns = 0; turns < policy.spins && goes_on(); ++turns) look();
  // Where they share cores, it is there when this one comes back.
  transport::Pace pace({.spins = 0, .awake = policy.awake});
  while (goes_on() && !pace.rest()) {
    if (task->looks_itself()) ended = has_ended(task, Step::kAdvance);
    if (!ended && look()) pace.moved();
  }
  if (!ended) {
    progress_.add_call();
    task->deadline = deadline_after(task->limit);
    watch(task->deadline);
    if (group.failure() == nullptr && has_ended(task, Step::kCalm)) {
      progress_.remove_call();
      ended = true;
    }
  }
  if (!ended) {
    if (group.failure() == nullptr) active_.push_back(task);
    return false;
  }
  group.queue.pop_front();
  group.finished = task->sequence;
  task->close();
  task->finish(nullptr);
  task->release();
  return true;
}

}  // namespace torch::comms::ctran
