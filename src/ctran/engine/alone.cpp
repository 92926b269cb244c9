#include <new>

#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"

// A synchronous call that has its engine to itself: without what others need to meet it, its peers
// being about to come to it, too. Most small ones end here.
namespace torch::comms::ctran {
namespace {

constexpr unsigned kCallsPerTurn = 64;
constexpr int kLooksPerTurn = 16;
// Input and output. Over it ranks that share cores are better off handing messages over in parts:
// all_reduce of 256 KB among four ranks on two cores takes 88 us instead of 134 to 159, of 128 KB
// in a window 41 instead of 62.
constexpr uint64_t kMostExpress = uint64_t{200} * 1024;  // bytes

uint64_t bytes_of(const Call& call) noexcept {
  uint64_t bytes = 0;
  for (const auto& piece : call.input) bytes += piece.size();
  for (const auto& piece : call.output) bytes += piece.size();
  return bytes;
}

}  // namespace

void Engine::run(Task* task) {
  if (task->queued && enter_alone(*task->group)) {
    if (!run_alone(task)) return wait(*task, true);
    return progress_.leave();
  }
  task->deadline = deadline_after(task->limit.left());
  submit(task);
  wait(*task);
}

// Takes the lock for a call, where that is all there is to do; now and then after a turn, so that
// peers are heard, but not those of its messages that are there already. False: without it.
bool Engine::enter_alone(const Membership& group) noexcept {
  if (!progress_.try_enter()) return false;
  if (++alone_ % kCallsPerTurn == 0) turn(group.base + Membership::kCollectives);
  if (is_alone(group)) return true;
  progress_.leave();
  return false;
}

// Nothing else is under way or to be looked at.
bool Engine::is_alone(const Membership& group) const noexcept {
  return !why_closed_ && active_.empty() && group.queue.empty() && !group.stands_still() &&
         group.departed.empty() && group.questions.empty() && group.failure() == nullptr &&
         dying_.empty() && !is_wanted();
}

// Another thread has something for the next turn.
bool Engine::is_wanted() const noexcept {
  return inbox_.load(std::memory_order_relaxed) != nullptr ||
         aborts_.load(std::memory_order_relaxed);
}

// Until look(bool moved), asked before and after the links are, says that all is done: true. False:
// it takes too long, or others want the lock. `often`: looks for each turn of the links.
template <class Look>
bool Engine::look_until_done(const Membership& group, int often, const Look& look) {
  const auto goes_on = [&] {
    return group.failure() == nullptr && !group.stands_still() && !is_wanted() &&
           !progress_.is_contended();
  };
  const auto& policy = links_.policy();
  // Where every rank has a core, what is awaited is on its way. No pauses: a look more often would
  // keep its writer from it.
  for (int looks = 1; looks <= policy.spins * often && goes_on(); ++looks)
    if (look(false) || (looks % often == 0 && move_links() && look(true))) return true;
  // Where they share cores, it is there when this one comes back.
  auto later = policy;
  later.spins = 0;
  transport::Backoff pace(later);
  while (goes_on() && !pace.step()) {
    if (look(false)) return true;
    if (!move_links()) continue;
    pace.reset();
    if (look(true)) return true;
  }
  return false;
}

bool Engine::move_links(std::optional<uint32_t> but) noexcept {
  bool arrived = false;
  for (auto* link : links_.active())
    arrived |= but ? link->progress_except(*but) : link->progress();
  unheard_ |= arrived;
  return arrived;
}

// It is in flight from here on, or has failed.
void Engine::enlist(Task* task) noexcept {
  progress_.add_call();
  task->deadline = deadline_after(task->limit.left());
  watch(task->deadline);
  if (task->group->failure() == nullptr) active_.push_back(task);
}

void Engine::end_alone(Task* task) noexcept {
  task->group->queue.pop_front();
  task->group->finished = task->sequence;
  task->close();
  task->finish(nullptr);
  task->release();
}

// True: it has ended; else it is in flight, or has failed.
bool Engine::run_alone(Task* task) noexcept {
  auto& group = *task->group;
  task->sequence = group.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  group.queue.push_back(task);
  bool ended = has_ended(task, Step::kBegin);
  if (group.disagreement) answer(group);
  ended = ended || look_until_done(group, 1, [&](bool moved) {
            return moved && has_ended(task, Step::kAdvance);
          });
  ended ? end_alone(task) : enlist(task);
  return ended;
}

bool Engine::run_express(const std::shared_ptr<Membership>& membership, const Call& call,
                         Task*& rest) {
  auto& group = *membership;
  if (forked() || bytes_of(call) > kMostExpress || !enter_alone(group)) return false;
  Express* express = nullptr;
  try {
    express = group.express(call);
  } catch (const CommError&) {  // the usual way meets it, too
  } catch (const std::bad_alloc&) {
  }
  const uint64_t number = group.sequence.load(std::memory_order_relaxed) + 1;
  if (express == nullptr ||
      !express->begin(call, tag_of(express->plan()->what(), number, group.base))) {
    progress_.leave();
    return false;
  }
  group.sequence.store(number, std::memory_order_relaxed);
  group.remember(express->plan(), number);
  try {
    const bool ended = express->move() ||
                       look_until_done(group, kLooksPerTurn, [&](bool) { return express->move(); });
    if (ended) {
      group.finished = number;
      progress_.leave();
      return true;
    }
    return go_on(membership, call, *express, rest);
  } catch (const std::bad_alloc&) {
    fail(group, Errc::kResourceExhausted, "no memory left", {group.place.rank});
    progress_.leave();
    throw CommError(Errc::kResourceExhausted, "no memory left",
                    {.op = std::string(call.name), .comm = group.name, .seq = number});
  }
}

// With the task that run_express() has done without, and with the lock, as run_alone() ends.
bool Engine::go_on(const std::shared_ptr<Membership>& group, const Call& call,
                   const Express& express, Task*& rest) {
  auto* task = tasks_.take_collective();
  rest = task;
  try {
    task->group = group;
    task->prepare(call, express.plan());
  } catch (...) {
    task->release();  // the engine's reference; the other is the caller's
    throw;
  }
  task->go_on(express);
  task->name = call.name;
  task->limit = call.limit;
  task->sequence = group->sequence.load(std::memory_order_relaxed);
  group->queue.push_back(task);
  const bool ended = has_ended(task, Step::kBegin);
  if (group->disagreement) answer(*group);
  if (!ended) return enlist(task), false;
  end_alone(task);
  progress_.leave();
  return true;
}

}  // namespace torch::comms::ctran
