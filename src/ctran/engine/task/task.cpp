#include "ctran/engine/task/task.hpp"

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"

namespace torch::comms::ctran {

void Task::release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The group keeps the engine, which keeps the pool.
  const auto last = std::move(group);
  last->engine->task_pool().release(this);
}

void Task::finish(std::unique_ptr<CommError> with) noexcept {
  error = std::move(with);
  is_done.store(true, std::memory_order_seq_cst);
}

EngineWork::EngineWork(const EngineWork& other) noexcept : task_(other.task_) {
  if (task_ != nullptr) task_->retain();
}

EngineWork::~EngineWork() {
  if (task_ != nullptr && !task_->group->engine->is_forked()) task_->release();
}

bool EngineWork::done() const noexcept {
  return task_ == nullptr || task_->is_done.load(std::memory_order_acquire);
}

bool EngineWork::poll() noexcept {
  if (done() || task_->group->engine->is_forked()) return done();
  task_->group->engine->progress_engine().poll_once(false);
  return done();
}

void EngineWork::wait() {
  if (!done()) {
    auto& engine = *task_->group->engine;
    engine.require_own_process(task_->name);
    engine.wait(*task_);
  }
  if (const auto* error = this->error()) throw CommError(*error);
}

bool EngineWork::wait_for(std::chrono::milliseconds limit) {
  if (done()) return true;
  auto& engine = *task_->group->engine;
  engine.require_own_process(task_->name);
  engine.progress_engine().wait(task_->is_done, deadline_after(limit));
  return done();
}

int EngineWork::source() const noexcept {
  return task_ != nullptr && done() && task_->error == nullptr ? task_->source : kAnySource;
}

const CommError* EngineWork::error() const noexcept {
  return task_ != nullptr && done() ? task_->error.get() : nullptr;
}

}  // namespace torch::comms::ctran
