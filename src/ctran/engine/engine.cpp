#include "ctran/engine/engine.hpp"

#include <algorithm>
#include <new>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/fingerprint.hpp"
#include "ctran/engine/membership.hpp"

namespace torch::comms::ctran {
namespace {

constexpr uint32_t kFirstStream = 16;  // those before are the family's own
constexpr unsigned kTurnsPerClock = 16;
constexpr size_t kMostClaimed = 1024;  // streams of groups that are remembered one by one
constexpr std::chrono::milliseconds kAskAfter{200};

std::unique_ptr<CommError> error_of(const Task& task) {
  const auto& group = *task.group;
  return std::make_unique<CommError>(task.failed.code, task.failed.why,
                                     Context{.op = std::string(task.name),
                                             .comm = group.name,
                                             .rank = group.place.rank,
                                             .peer = task.failed.peer,
                                             .seq = task.number,
                                             .limit = task.limit.duration});
}

}  // namespace

Engine::Engine(LinkTable links, const FamilyOptions& options)
    : links_(std::move(links)),
      choose_(options.choose),
      eager_ranks_(options.eager_ranks),
      hearing_(options.hearing),
      interrupt_(options.interrupt),
      progress_(*this, links_.policy()),
      control_(links_.size()),
      fork_generation_(base::fork_generation()),
      next_proposed_(kFirstStream),
      next_stream_(kFirstStream) {
  claimed_.reserve(kMostClaimed);
}

Engine::~Engine() {
  if (forked()) progress_.abandon();
}

void Engine::wait(const Task& task, bool entered) {
  if (!interrupt_) return progress_.wait(task.done, Deadline::max(), entered);
  constexpr std::chrono::milliseconds kTick{50};
  while (true) {
    progress_.wait(task.done, std::chrono::steady_clock::now() + kTick,
                   std::exchange(entered, false));
    if (task.done.load(std::memory_order_acquire)) return;
    try {
      interrupt_();
    } catch (...) {
      progress_.need_thread();
      progress_.glance(false);
      throw;
    }
  }
}

bool Engine::forked() const noexcept { return base::fork_generation() != fork_generation_; }

void Engine::require_own_process(std::string_view op) const {
  if (forked())
    throw CommError(Errc::kForked, "this communicator belongs to the parent process",
                    {.op = std::string(op)});
}

void Engine::open() {
  // Also for what peers ask while this rank is in no call.
  if (links_.size() > 1) progress_.need_thread();
  progress_.enter();
  try {
    for (int peer = 0; links_.size() <= eager_ranks_ && peer < links_.size(); ++peer)
      if (peer != links_.rank()) reach(peer);
  } catch (...) {
    progress_.leave();
    throw;
  }
  progress_.leave();
}

transport::Transport& Engine::reach(int family_rank) {
  bool fresh = false;
  auto& link = links_.to(family_rank, &fresh);
  if (!fresh || family_rank == links_.rank()) return link;
  control_.listen(family_rank, link);
  for (const auto& [base, group] : groups_)
    if (group->left && group->failure() == nullptr && group->rank_of(family_rank) >= 0)
      send_notice(family_rank, notice_of_departure(*group));
  return link;
}

uint32_t Engine::propose_streams(int failed, uint32_t parent) noexcept {
  constexpr int kMostDoublings = 8;
  const uint64_t steps = hash_bytes(&parent, sizeof parent, static_cast<uint64_t>(failed));
  const auto ahead = static_cast<uint32_t>(steps) & ((1u << std::min(failed, kMostDoublings)) - 1u);
  const std::lock_guard lock(streams_mutex_);
  return std::exchange(next_proposed_, next_proposed_ + Membership::kStreams) +
         ahead * Membership::kStreams;
}

bool Engine::claim_streams(uint32_t base) noexcept {
  const std::lock_guard lock(streams_mutex_);
  const auto place = std::lower_bound(claimed_.begin(), claimed_.end(), base);
  if (base < next_stream_ || (place != claimed_.end() && *place == base)) return false;
  claimed_.insert(place, base);  // its memory is there
  if (claimed_.size() == kMostClaimed) {
    next_stream_ = claimed_.front() + Membership::kStreams;
    claimed_.erase(claimed_.begin());
  }
  next_proposed_ = std::max(next_proposed_, base + Membership::kStreams);
  return true;
}

void Engine::submit(Task* task) noexcept {
  progress_.add_call();
  auto* head = inbox_.load(std::memory_order_relaxed);
  do task->next = head;
  while (!inbox_.compare_exchange_weak(head, task, std::memory_order_seq_cst));
}

void Engine::start(Task* task) noexcept {
  submit(task);
  progress_.glance(true);
  if (!closed_.load(std::memory_order_seq_cst)) return;
  // There is no thread any more that would come to it.
  progress_.enter();
  take_inbox();
  progress_.leave();
}

bool Engine::take_inbox() noexcept {
  if (inbox_.load(std::memory_order_seq_cst) == nullptr) return false;
  auto* newest = inbox_.exchange(nullptr, std::memory_order_seq_cst);
  Task* oldest = nullptr;
  while (newest != nullptr) {
    auto* older = std::exchange(newest->next, oldest);
    oldest = std::exchange(newest, older);
  }
  while (oldest != nullptr) accept(std::exchange(oldest, oldest->next));
  return true;
}

void Engine::accept(Task* task) noexcept {
  auto& group = *task->group;
  if (task->queued) task->sequence = group.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  if (group.failure() != nullptr) return end(task, group.error_for(*task));
  watch(task->deadline);
  if (!task->queued) {
    active_.push_back(task);
    if (has_ended(task, Step::kBegin)) std::erase(active_, task), end(task, nullptr);
    return;
  }
  group.queue.push_back(task);
  if (!group.departed.empty()) fail_for_departed(group);
  if (group.queue.size() == 1) start_next(group);
}

// The group's next collectives, up to one that has to wait.
void Engine::start_next(Membership& group) noexcept {
  while (!group.queue.empty() && group.failure() == nullptr) {
    auto* task = group.queue.front();
    const bool ended = has_ended(task, Step::kBegin);
    if (group.disagreement) answer(group);
    if (!group.questions.empty()) compare_with_questions(group);
    if (group.failure() != nullptr) return;  // which is the task's, too
    if (!ended) return active_.push_back(task);
    group.queue.pop_front();
    end(task, nullptr);
  }
}

// True: well, or alone. Any other failure ends its group, and the task with it.
bool Engine::has_ended(Task* task, Step step) noexcept {
  auto& group = *task->group;
  const int self = group.place.rank;
  try {
    const auto outcome = step == Step::kBegin ? task->begin() : task->advance();
    if (outcome == Task::Outcome::kFailed && task->fails_alone) return true;
    if (outcome == Task::Outcome::kFailed) on_failure(task);
    return outcome == Task::Outcome::kDone;
  } catch (const CommError& error) {
    fail(group, error.code(), error.why(), {self});
  } catch (const std::bad_alloc&) {
    fail(group, Errc::kResourceExhausted, "no memory left", {self});
  }
  return false;
}

bool Engine::advance_all() noexcept {
  bool moved = false, closing = false;
  for (size_t i = 0; i < active_.size();) {
    auto* task = active_[i];
    auto& group = *task->group;
    closing |= group.leaving || !group.departed.empty();
    if (group.failure() != nullptr || group.holds(*task) || !has_ended(task, Step::kAdvance)) {
      ++i;
      continue;
    }
    moved = true;
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    const bool queued = task->queued;
    if (queued) group.queue.pop_front();
    const auto keep = task->group;  // ending the task may let it go
    end(task, nullptr);
    if (queued) start_next(group);
  }
  for (const auto& [base, group] : groups_) {
    if (!closing) break;
    announce_departure(*group);
    fail_for_departed(*group);
  }
  return moved;
}

void Engine::end(Task* task, std::unique_ptr<CommError> error) noexcept {
  if (!error && !task->queued) task->group->note_ended();  // also alone
  if (!error && task->fails_alone) error = error_of(*task);
  if (!error && task->queued) task->group->finished = task->sequence;
  task->close();
  const auto group = task->group->leaving ? task->group : nullptr;
  const bool told = task->listener == nullptr;
  task->finish(std::move(error));  // before others can tell how it ended
  if (!told) {
    const std::lock_guard lock(endings_mutex_);
    endings_.push_back(task);
    untold_.store(true, std::memory_order_release);
  }
  progress_.remove_call();
  progress_.ended();
  if (told) task->release();
  if (group) announce_departure(*group);
}

void Engine::tell_endings() noexcept {
  std::vector<Task*> endings;
  {
    const std::lock_guard lock(endings_mutex_);
    endings.swap(endings_);
    untold_.store(false, std::memory_order_release);
  }
  for (auto* task : endings) {
    task->listener->on_end(task->error.get());
    task->release();
  }
}

bool Engine::turn(std::optional<uint32_t> but) noexcept {
  bool moved = take_inbox();
  if (why_closed_) return moved;  // what was submitted has ended
  if (aborts_.load(std::memory_order_relaxed)) moved |= check_aborts();
  moved |= move_links(but);
  if (!active_.empty()) moved |= advance_all();
  const bool look = ++turns_ % kTurnsPerClock == 0;
  if (unheard_ && (look || !moved)) moved |= listen();
  if (overdue_ || (look && next_deadline_ != Deadline::max())) moved |= check_deadlines();
  if (!dying_.empty()) bury(), moved = true;
  return moved;
}

// Asked before a sleep.
bool Engine::has_news() noexcept {
  if (inbox_.load(std::memory_order_seq_cst) != nullptr ||
      aborts_.load(std::memory_order_seq_cst) || unheard_)
    return true;
  if (active_.empty()) return false;
  const auto now = std::chrono::steady_clock::now();
  for (auto* task : active_) {
    if (!task->queued || task->asked || task->idle_since != Deadline::max()) continue;
    task->idle_since = now;
    watch(now + kAskAfter);
  }
  overdue_ = now >= next_deadline_;
  return overdue_;
}

bool Engine::needs_turns() const noexcept {
  return !why_closed_ && std::any_of(links_.active().begin(), links_.active().end(),
                                     [](const auto* link) { return link->has_unsent(); });
}

// Ranks that have connected here before this one needed them: they may have something to say.
bool Engine::welcome_guests() noexcept {
  bool any = false;
  try {
    for (int peer = links_.next_guest(); peer >= 0; peer = links_.next_guest())
      reach(peer), any = true;
  } catch (const CommError& error) {
    base::log(base::LogLevel::kWarning,
              std::string("a rank has connected in vain: ") + error.what());
  }
  return any;
}

// What peers say of groups, and whether they are still there.
bool Engine::listen() noexcept {
  unheard_ = false;
  bool heard_any = welcome_guests();
  for (size_t i = 0; i < links_.connected().size(); ++i) {
    const int peer = links_.connected()[i];
    auto& link = links_.to(peer);
    Notice notice;
    for (auto heard = control_.hear(peer, link, notice); heard != Control::Heard::kNothing;
         heard = control_.hear(peer, link, notice)) {
      heard_any = true;
      if (heard == Control::Heard::kNotice) {
        on_notice(peer, notice);
        continue;
      }
      const auto* failure = links_.failure(peer);
      if (failure != nullptr)
        on_peer_failed(peer, failure->code, failure->reason);
      else
        on_peer_failed(peer, Errc::kPeerFailed, "it broke the protocol");
    }
  }
  control_.tidy();
  return heard_any;
}

bool Engine::check_deadlines() noexcept {
  const auto now = std::chrono::steady_clock::now();
  overdue_ = false;
  if (now < next_deadline_) return false;
  next_deadline_ = Deadline::max();
  const auto check = [&](Task* task) {
    if (task->group->failure() != nullptr || task->group->inquiry) return;
    if (now < task->deadline) return watch(task->deadline);
    const std::string knob(task->limit.knob);
    inquire(*task->group, Errc::kTimeout,
            task->words() + " was not done within its limit of " +
                std::to_string(task->limit.duration.count()) + " ms" +
                (knob.empty() ? "" : ", " + knob) + "; " + task->waits_for(),
            task->awaited(), task->sequence);
  };
  for (auto* task : active_) {
    check(task);
    auto& group = *task->group;
    if (!task->queued || group.failure() != nullptr || group.inquiry) continue;
    for (size_t i = 1; i < group.queue.size(); ++i) check(group.queue[i]);
    if (task->asked || task->idle_since == Deadline::max() || group.stands_still()) continue;
    task->asked = now - task->idle_since >= kAskAfter;
    if (task->asked)
      ask(group, *static_cast<CollectiveTask*>(task));
    else
      watch(task->idle_since + kAskAfter);
  }
  for (auto& [base, group] : groups_) {
    if (group->failure() != nullptr || !group->stands_still()) continue;
    const auto until = group->inquiry ? group->inquiry->until : group->disagreement->until;
    if (now < until)
      watch(until);
    else if (group->inquiry)
      end_hearing(*group);
    else
      settle_disagreement(*group);
  }
  return true;
}

void Engine::attend_to_aborts() noexcept {
  aborts_.store(true, std::memory_order_seq_cst);
  progress_.glance(true);
}

bool Engine::check_aborts() noexcept {
  if (!aborts_.exchange(false, std::memory_order_seq_cst)) return false;
  for (auto& [base, group] : groups_)
    if (const auto why = group->requested_abort())
      fail(*group, why->code(), why->why(), why->context().culprits);
  return true;
}

void Engine::add(const std::shared_ptr<Membership>& group) {
  progress_.enter();
  groups_[group->base] = group;
  if (why_closed_) group->set_failure(why_closed_->code(), why_closed_->why(), {});
  for (const int member : group->ranks)
    if (const auto* failure = links_.failure(member))
      on_peer_failed(member, failure->code, failure->reason);
  for (auto next = early_.begin(); next != early_.end();) {
    const auto early = next++;
    if (early->notice.base != group->base) continue;
    on_notice(early->from, early->notice);
    early_.erase(early);
  }
  if (!dying_.empty()) bury();
  progress_.leave();
}

void Engine::depart(Membership& group) noexcept {
  progress_.enter();
  take_inbox();
  group.leaving = true;
  announce_departure(group);
  progress_.leave();
  progress_.glance(true);
}

void Engine::rest(Membership& group) noexcept {
  progress_.enter();
  take_inbox();
  if (group.failure() == nullptr)
    tell(group, {.kind = Notice::Kind::kRests, .base = group.base, .about = links_.rank()});
  progress_.leave();
  progress_.glance(true);
}

// Once the others know of all that this rank has sent, and again when it takes nothing more. Not
// only when nothing is open: calls of two ranks that leave may wait for each other.
void Engine::announce_departure(Membership& group) noexcept {
  if (!group.leaving || group.failure() != nullptr || (group.left && !group.told.receives)) return;
  bool receives = !group.queue.empty();
  for (const auto* task : active_) {
    if (task->group.get() != &group) continue;
    if (!group.left && task->may_send()) return;
    receives = receives || task->may_receive();
  }
  if (group.left && receives) return;
  // Other members may wait for this rank as it does, or did, for a member that closed the group.
  if (receives || group.met_departure) reach_all(group);
  group.left = true;
  group.told = {group.sequence.load(std::memory_order_relaxed), receives};
  tell(group, notice_of_departure(group));
}

// Members without a connection may wait for this rank, as it does for others.
void Engine::reach_all(const Membership& group) noexcept {
  for (const int member : group.ranks) try {
      reach(member);
    } catch (const std::exception& error) {
      base::log(base::LogLevel::kWarning,
                "rank " + std::to_string(member) + " could not be told: " + error.what());
    }
}

Notice Engine::notice_of_departure(const Membership& group) {
  return {.kind = Notice::Kind::kDeparts,
          .base = group.base,
          .sequence = group.told.last,
          .receives = group.told.receives};
}

void Engine::remove(const std::shared_ptr<Membership>& group) noexcept {
  progress_.enter();
  take_inbox();
  check_aborts();  // their reason comes first
  if (group->failure() == nullptr && (!group->left || group->told.receives)) {
    group->told = {group->sequence.load(std::memory_order_relaxed), false};
    tell(*group, notice_of_departure(*group));
  }
  if (group->set_failure(Errc::kFinalized, "the communicator was closed", {}))
    dying_.push_back(group.get());
  bury();
  groups_.erase(group->base);
  removed_.add(group->base, group->base + Membership::kStreams - 1);
  progress_.leave();
}

std::string Engine::carriers() {
  if (forked()) return "";
  progress_.enter();
  std::string text;
  try {
    text = links_.carriers();
  } catch (...) {
    progress_.leave();
    throw;
  }
  progress_.leave();
  return text;
}

void Engine::shut_down(const CommError& why) noexcept {
  progress_.stop();
  progress_.enter();
  closed_.store(true, std::memory_order_seq_cst);  // whoever does not see it has submitted before
  take_inbox();
  check_aborts();  // their reason comes first
  if (!why_closed_) why_closed_ = why;
  for (auto& [base, group] : groups_)
    if (group->set_failure(why_closed_->code(), why_closed_->why(), {}))
      dying_.push_back(group.get());
  bury();
  links_.close();
  groups_.clear();
  progress_.leave();
}

}  // namespace torch::comms::ctran
