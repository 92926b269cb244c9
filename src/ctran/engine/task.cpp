#include "ctran/engine/task.hpp"

#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"

namespace torch::comms::ctran {

void Task::release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The group keeps the engine, which keeps the pool.
  const auto last = std::move(group);
  last->engine->tasks().give(this);
}

void Task::finish(std::unique_ptr<CommError> with) noexcept {
  error = std::move(with);
  done.store(true, std::memory_order_seq_cst);
}

Work::Work(const Work& other) noexcept : task_(other.task_) {
  if (task_ != nullptr) task_->retain();
}

Work::~Work() {
  if (task_ != nullptr && !task_->group->engine->forked()) task_->release();
}

bool Work::done() const noexcept {
  return task_ == nullptr || task_->done.load(std::memory_order_acquire);
}

bool Work::poll() noexcept {
  if (done() || task_->group->engine->forked()) return done();
  task_->group->engine->progress().glance(false);
  return done();
}

void Work::wait() {
  if (!done()) {
    auto& engine = *task_->group->engine;
    engine.require_own_process(task_->name);
    engine.wait(*task_);
  }
  if (const auto* error = this->error()) throw CommError(*error);
}

bool Work::wait_for(std::chrono::milliseconds limit) {
  if (done()) return true;
  auto& engine = *task_->group->engine;
  engine.require_own_process(task_->name);
  engine.progress().wait(task_->done, deadline_after(limit));
  return done();
}

int Work::source() const noexcept {
  return task_ != nullptr && done() && task_->error == nullptr ? task_->source : kAnybody;
}

const CommError* Work::error() const noexcept {
  return task_ != nullptr && done() ? task_->error.get() : nullptr;
}

}  // namespace torch::comms::ctran
