#include "ctran/window/window.hpp"

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group_state.hpp"
#include "ctran/window/opening.hpp"
#include "ctran/window/window_task.hpp"

namespace torch::comms::ctran {

std::unique_ptr<Window> Window::open(EngineGroup& group, const Offer& offer, std::string_view name,
                                     const CallTimeout& limit) {
  const auto& membership = group.state_;
  membership->engine->require_own_process(name);
  TC_CHECK(offer.note.size() <= kMostNoteBytes);
  Opening opening(group, *membership, name, limit);
  opening.meet(offer.memory, offer.slots, offer.note);
  return std::unique_ptr<Window>(new Window(membership, opening));
}

Window::Window(std::shared_ptr<GroupState> group, Opening& opening)
    : group_(std::move(group)),
      reach_(opening.take_reach()),
      registrations_(opening.take_registrations()),
      awaited_(reach_->members.size()),
      is_served_(opening.is_served()) {
  if (!is_served_) return;
  auto& progress = group_->engine->progress_engine();
  progress.add_call();
  progress.poll_once(false);
}

Window::~Window() { release(); }

void Window::release() noexcept {
  if (!open_.exchange(false)) return;
  registrations_.clear();
  auto& engine = *group_->engine;
  if (!is_served_ || engine.is_forked()) return;
  engine.progress_engine().remove_call();
  engine.progress_engine().poll_once(false);
}

void Window::close(EngineGroup& group, std::string_view name, const CallTimeout& limit) {
  TC_CHECK(group.state_ == group_);
  try {
    run({.kind = OneSided::Kind::kSettle, .name = name, .limit = limit});
    run_collective(
        group, {.name = name, .blocks = schedule::Blocks::even(0, group.size()), .timeout = limit});
  } catch (...) {
    release();
    throw;
  }
  reach_->closed.store(true);
  group_->engine->progress_engine().poll_once(true);
  release();
}

Task* Window::make_task(const OneSided& operation) {
  group_->require_usable(operation.name);
  if (!open_.load())
    throw CommError(
        Errc::kInvalidArgument, "the window is closed",
        {.op = std::string(operation.name), .comm = group_->name, .rank = reach_->rank});
  uint64_t count = 0;
  if (operation.kind == OneSided::Kind::kWaitSignal)
    count = awaited_[static_cast<size_t>(operation.rank)].fetch_add(1) + 1;
  auto* task = new WindowTask(reach_, operation, count);
  task->group = group_;
  return task;
}

void Window::run(const OneSided& operation) {
  auto& engine = *group_->engine;
  EngineWork work(make_task(operation));
  engine.submit(work.task_);
  engine.wait(*work.task_);
  if (const auto* error = work.error()) throw CommError(*error);
}

EngineWork Window::start(const OneSided& operation, CompletionListener* listener) {
  auto& engine = *group_->engine;
  engine.progress_engine().ensure_thread();
  EngineWork work(make_task(operation));
  work.task_->listener = listener;
  engine.start(work.task_);
  return work;
}

Bytes Window::mapped(int rank, std::shared_ptr<const void>& keeper) const {
  const auto& member = reach_->members[static_cast<size_t>(rank)];
  if (member.link == nullptr) return reach_->own;
  keeper = member.memory;
  return member.memory->mapped();
}

}  // namespace torch::comms::ctran
