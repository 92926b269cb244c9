#include "ctran/window/window.hpp"

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/window/window_exchange.hpp"
#include "ctran/window/window_task.hpp"

namespace torch::comms::ctran {

std::unique_ptr<Window> Window::create(EngineGroup& group, const LocalWindow& local,
                                       std::string_view name, const CallTimeout& limit) {
  const auto& membership = group.state_;
  membership->engine->require_own_process(name);
  TC_CHECK(local.metadata.size() <= kMaxMetadataBytes);
  WindowExchange window_exchange(group, *membership, name, limit);
  window_exchange.run(local.memory, local.slots, local.metadata);
  return std::unique_ptr<Window>(new Window(membership, window_exchange));
}

Window::Window(std::shared_ptr<GroupState> group, WindowExchange& window_exchange)
    : group_(std::move(group)),
      peer_windows_(window_exchange.release_peer_windows()),
      registrations_(window_exchange.release_registrations()),
      awaited_signals_(peer_windows_->windows.size()),
      needs_target_progress_(window_exchange.needs_target_progress()) {
  if (!needs_target_progress_) return;
  auto& progress = group_->engine->progress_engine();
  progress.add_call();
  progress.poll_once(false);
}

Window::~Window() { release(); }

void Window::release() noexcept {
  if (!is_open_.exchange(false)) return;
  registrations_.clear();
  auto& engine = *group_->engine;
  if (!needs_target_progress_ || engine.is_forked()) return;
  engine.progress_engine().remove_call();
  engine.progress_engine().poll_once(false);
}

void Window::close(EngineGroup& group, std::string_view name, const CallTimeout& limit) {
  TC_CHECK(group.state_ == group_);
  try {
    run({.kind = RmaOperation::Kind::kFlush, .name = name, .timeout = limit});
    run_collective(
        group, {.name = name, .blocks = schedule::Blocks::even(0, group.size()), .timeout = limit});
  } catch (...) {
    release();
    throw;
  }
  peer_windows_->is_closed.store(true);
  group_->engine->progress_engine().poll_once(true);
  release();
}

Task* Window::make_task(const RmaOperation& operation) {
  group_->require_usable(operation.name);
  if (!is_open_.load())
    throw CommError(
        Errc::kInvalidArgument, "the window is closed",
        {.op = std::string(operation.name), .comm = group_->name, .rank = peer_windows_->rank});
  uint64_t count = 0;
  if (operation.kind == RmaOperation::Kind::kWaitSignal)
    count = awaited_signals_[static_cast<size_t>(operation.rank)].fetch_add(1) + 1;
  auto* task = new WindowTask(peer_windows_, operation, count);
  task->group = group_;
  return task;
}

void Window::run(const RmaOperation& operation) {
  auto& engine = *group_->engine;
  EngineWork work(make_task(operation));
  engine.submit(work.task_);
  engine.wait(*work.task_);
  if (const auto* error = work.error()) throw CommError(*error);
}

EngineWork Window::start(const RmaOperation& operation, CompletionListener* listener) {
  auto& engine = *group_->engine;
  engine.progress_engine().ensure_thread();
  EngineWork work(make_task(operation));
  work.task_->listener = listener;
  engine.start(work.task_);
  return work;
}

Bytes Window::mapped(int rank, std::shared_ptr<const void>& owner) const {
  const auto& member = peer_windows_->windows[static_cast<size_t>(rank)];
  if (member.link == nullptr) return peer_windows_->local_memory;
  owner = member.memory;
  return member.memory->mapped();
}

}  // namespace torch::comms::ctran
