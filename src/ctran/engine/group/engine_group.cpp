#include "ctran/engine/group/engine_group.hpp"

#include <algorithm>
#include <numeric>

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"
#include "ctran/engine/task/messages_task.hpp"

namespace torch::comms::ctran {
namespace {

std::optional<CommError> poll_failure_of(GroupState& group) {
  auto& engine = *group.engine;
  engine.require_own_process("failure");
  if (group.failure() == nullptr) engine.progress_engine().drain_incoming();
  const auto* failure = group.failure();
  return failure == nullptr ? std::nullopt : std::optional<CommError>(*failure);
}

bool is_message(const EngineCall& call) noexcept {
  return call.operation == schedule::Operation::kSend ||
         call.operation == schedule::Operation::kReceive;
}

// Makes a task with its two references, which is not submitted yet.
Task* make_task(const std::shared_ptr<GroupState>& group, std::span<const EngineCall> calls,
                CompletionListener* listener) {
  auto& engine = *group->engine;
  const auto& first = calls.front();
  group->require_usable(first.name);
  Task* task = nullptr;
  try {
    if (calls.size() > 1 || is_message(first)) {
      auto* messages = engine.task_pool().acquire_messages();
      task = messages;
      task->group = group;
      messages->prepare(calls, group->layout.rank, group->size());
    } else {
      auto* collective = engine.task_pool().acquire_collective();
      task = collective;
      task->group = group;
      // Consecutive calls are often the same.
      auto plan = collective->reuse_plan(group->base);
      if (!plan || !plan->matches(first)) plan = group->plan(first);
      collective->prepare(first, std::move(plan));
    }
  } catch (...) {
    if (task != nullptr) task->release(), task->release();
    throw;
  }
  task->name = first.name;
  task->listener = listener;
  task->timeout = first.timeout;
  return task;
}

}  // namespace

std::unique_ptr<EngineGroup> EngineGroup::world(std::shared_ptr<LinkContext> context,
                                                std::string name) {
  auto& engine = context->engine_;
  engine->require_own_process("new_comm");
  std::vector<int> ranks(static_cast<size_t>(context->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const uint32_t base = engine->propose_streams(0);
  TC_CHECK(engine->claim_streams(base));
  auto group = std::make_shared<GroupState>(engine, std::move(name), std::move(ranks), base);
  engine->add_group(group);
  return std::unique_ptr<EngineGroup>(new EngineGroup(std::move(context), std::move(group)));
}

EngineGroup::EngineGroup(std::shared_ptr<LinkContext> context, std::shared_ptr<GroupState> group)
    : link_context_(std::move(context)), state_(std::move(group)) {}

EngineGroup::~EngineGroup() {
  auto& engine = *state_->engine;
  if (engine.is_forked())  // never destroyed, as in ~LinkContext
    static_cast<void>(new std::shared_ptr<GroupState>(std::move(state_)));
  else
    engine.remove_group(state_);
}

int EngineGroup::rank() const noexcept { return state_->layout.rank; }
int EngineGroup::size() const noexcept { return state_->layout.size; }
uint32_t EngineGroup::id() const noexcept { return state_->base; }
const std::string& EngineGroup::name() const noexcept { return state_->name; }
const std::shared_ptr<LinkContext>& EngineGroup::link_context() const noexcept {
  return link_context_;
}
int EngineGroup::context_rank(int rank) const noexcept {
  return state_->ranks[static_cast<size_t>(rank)];
}
uint64_t EngineGroup::sequence() const noexcept {
  return state_->sequence.load(std::memory_order_relaxed);
}

void EngineGroup::run(const EngineCall& call) {
  auto& engine = *state_->engine;
  EngineWork rest;
  if (engine.run_fast_path(state_, call, rest.task_)) return;
  if (rest.task_ == nullptr) return run(std::span(&call, 1));
  engine.wait(*rest.task_, true);
  if (const auto* error = rest.error()) throw CommError(*error);
}

void EngineGroup::run(std::span<const EngineCall> batch) {
  TC_CHECK(!batch.empty());
  EngineWork work(make_task(state_, batch, nullptr));
  state_->engine->run(work.task_);
  if (const auto* error = work.error()) throw CommError(*error);
}

EngineWork EngineGroup::start(const EngineCall& call, CompletionListener* listener) {
  return start(std::span(&call, 1), listener);
}

EngineWork EngineGroup::start(std::span<const EngineCall> batch, CompletionListener* listener) {
  TC_CHECK(!batch.empty());
  auto& engine = *state_->engine;
  engine.require_own_process(batch.front().name);
  engine.progress_engine().ensure_thread();
  EngineWork work(make_task(state_, batch, listener));
  work.task_->deadline = deadline_after(work.task_->timeout.remaining());
  engine.start(work.task_);
  return work;
}

void EngineGroup::announce_leave() noexcept {
  if (!state_->engine->is_forked()) state_->engine->announce_leave(*state_);
}

void EngineGroup::announce_quiesced() noexcept {
  if (!state_->engine->is_forked()) state_->engine->announce_quiesced(*state_);
}

uint32_t EngineGroup::GroupObserver::quiesced_ranks() const noexcept {
  const auto group = state_.lock();
  return group ? group->quiesced.load(std::memory_order_acquire) : 0;
}

EngineGroup::GroupObserver EngineGroup::observer() const {
  GroupObserver result;
  result.state_ = state_;
  return result;
}

void EngineGroup::abort(const std::string& why) noexcept {
  abort(CommError(Errc::kAborted, "abort() was called" + (why.empty() ? "" : ": " + why)));
}

void EngineGroup::abort(const CommError& why) noexcept {
  auto& engine = *state_->engine;
  if (engine.is_forked() || state_->failure() != nullptr) return;
  state_->request_abort(why);
  engine.notify_abort_request();
}

std::optional<CommError> EngineGroup::failure() const {
  auto& engine = *state_->engine;
  engine.require_own_process("failure");
  if (state_->failure() == nullptr) engine.progress_engine().poll_once(false);
  const auto* failure = state_->failure();
  return failure == nullptr ? std::nullopt : std::optional<CommError>(*failure);
}

std::optional<CommError> EngineGroup::poll_failure() const { return poll_failure_of(*state_); }

std::optional<CommError> EngineGroup::GroupObserver::failure() const {
  const auto group = state_.lock();
  if (!group) return std::nullopt;
  auto failure = poll_failure_of(*group);
  if (failure && failure->code() == Errc::kFinalized) return std::nullopt;
  return failure;
}

}  // namespace torch::comms::ctran
