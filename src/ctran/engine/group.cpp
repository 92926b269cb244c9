#include "ctran/engine/group.hpp"

#include <algorithm>
#include <numeric>

#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"
#include "ctran/engine/messages_task.hpp"

namespace torch::comms::ctran {
namespace {

std::optional<CommError> heard_of(Membership& membership) {
  auto& engine = *membership.engine;
  engine.require_own_process("failure");
  if (membership.failure() == nullptr) engine.progress().catch_up();
  const auto* failure = membership.failure();
  return failure == nullptr ? std::nullopt : std::optional<CommError>(*failure);
}

bool is_message(const Call& call) noexcept {
  return call.operation == schedule::Operation::kSend ||
         call.operation == schedule::Operation::kReceive;
}

// With its two references, not yet submitted.
Task* make_task(const std::shared_ptr<Membership>& group, std::span<const Call> calls,
                Listener* listener) {
  auto& engine = *group->engine;
  const auto& first = calls.front();
  group->require_usable(first.name);
  Task* task = nullptr;
  try {
    if (calls.size() > 1 || is_message(first)) {
      auto* messages = engine.tasks().take_messages();
      task = messages;
      task->group = group;
      messages->prepare(calls, group->place.rank, group->size());
    } else {
      auto* collective = engine.tasks().take_collective();
      task = collective;
      task->group = group;
      // One call after another is often the same one.
      auto plan = collective->take_plan(group->base);
      if (!plan || !plan->fits(first)) plan = group->plan(first);
      collective->prepare(first, std::move(plan));
    }
  } catch (...) {
    if (task != nullptr) task->release(), task->release();
    throw;
  }
  task->name = first.name;
  task->listener = listener;
  task->limit = first.limit;
  return task;
}

}  // namespace

std::unique_ptr<Group> Group::world(std::shared_ptr<Family> family, std::string name) {
  auto& engine = family->engine_;
  engine->require_own_process("new_comm");
  std::vector<int> ranks(static_cast<size_t>(family->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const uint32_t base = engine->propose_streams(0);
  TC_CHECK(engine->claim_streams(base));
  auto membership = std::make_shared<Membership>(engine, std::move(name), std::move(ranks), base);
  engine->add(membership);
  return std::unique_ptr<Group>(new Group(std::move(family), std::move(membership)));
}

Group::Group(std::shared_ptr<Family> family, std::shared_ptr<Membership> membership)
    : family_(std::move(family)), membership_(std::move(membership)) {}

Group::~Group() {
  auto& engine = *membership_->engine;
  if (engine.forked())  // never destroyed, as in ~Family
    static_cast<void>(new std::shared_ptr<Membership>(std::move(membership_)));
  else
    engine.remove(membership_);
}

int Group::rank() const noexcept { return membership_->place.rank; }
int Group::size() const noexcept { return membership_->place.size; }
uint32_t Group::number() const noexcept { return membership_->base; }
const std::string& Group::name() const noexcept { return membership_->name; }
const std::shared_ptr<Family>& Group::family() const noexcept { return family_; }
int Group::family_rank(int rank) const noexcept {
  return membership_->ranks[static_cast<size_t>(rank)];
}
uint64_t Group::sequence() const noexcept {
  return membership_->sequence.load(std::memory_order_relaxed);
}

void Group::run(const Call& call) {
  auto& engine = *membership_->engine;
  Work rest;
  if (engine.run_express(membership_, call, rest.task_)) return;
  if (rest.task_ == nullptr) return run(std::span(&call, 1));
  engine.wait(*rest.task_, true);
  if (const auto* error = rest.error()) throw CommError(*error);
}

void Group::run(std::span<const Call> batch) {
  TC_CHECK(!batch.empty());
  Work work(make_task(membership_, batch, nullptr));
  membership_->engine->run(work.task_);
  if (const auto* error = work.error()) throw CommError(*error);
}

Work Group::start(const Call& call, Listener* listener) {
  return start(std::span(&call, 1), listener);
}

Work Group::start(std::span<const Call> batch, Listener* listener) {
  TC_CHECK(!batch.empty());
  auto& engine = *membership_->engine;
  engine.require_own_process(batch.front().name);
  engine.progress().need_thread();
  Work work(make_task(membership_, batch, listener));
  work.task_->deadline = deadline_after(work.task_->limit.left());
  engine.start(work.task_);
  return work;
}

void Group::depart() noexcept {
  if (!membership_->engine->forked()) membership_->engine->depart(*membership_);
}

void Group::rest() noexcept {
  if (!membership_->engine->forked()) membership_->engine->rest(*membership_);
}

uint32_t Group::Hearing::at_rest() const noexcept {
  const auto membership = membership_.lock();
  return membership ? membership->resting.load(std::memory_order_acquire) : 0;
}

Group::Hearing Group::hearing() const {
  Hearing hearing;
  hearing.membership_ = membership_;
  return hearing;
}

void Group::abort(const std::string& why) noexcept {
  abort(CommError(Errc::kAborted, "abort() was called" + (why.empty() ? "" : ": " + why)));
}

void Group::abort(const CommError& why) noexcept {
  auto& engine = *membership_->engine;
  if (engine.forked() || membership_->failure() != nullptr) return;
  membership_->request_abort(why);
  engine.attend_to_aborts();
}

std::optional<CommError> Group::failure() const {
  auto& engine = *membership_->engine;
  engine.require_own_process("failure");
  if (membership_->failure() == nullptr) engine.progress().glance(false);
  const auto* failure = membership_->failure();
  return failure == nullptr ? std::nullopt : std::optional<CommError>(*failure);
}

std::optional<CommError> Group::failure_heard() const { return heard_of(*membership_); }

std::optional<CommError> Group::Hearing::failure() const {
  const auto membership = membership_.lock();
  if (!membership) return std::nullopt;
  auto failure = heard_of(*membership);
  if (failure && failure->code() == Errc::kFinalized) return std::nullopt;
  return failure;
}

}  // namespace torch::comms::ctran
