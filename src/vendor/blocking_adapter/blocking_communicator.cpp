#include "vendor/blocking_adapter/blocking_communicator.hpp"

#include <exception>
#include <utility>

#include "gpu/cpu_runtime.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::nccl::host {

BlockingCommunicator::BlockingCommunicator(const VendorLibrary& library, abi::Comm communicator,
                                           int rank, int size)
    : library_(library), communicator_(communicator), rank_(rank), size_(size) {}

void BlockingCommunicator::launch(abi::Stream stream, Body body) {
  // A captured body may run any number of times, and not only while the communicator lives; it is
  // not counted.
  const bool counts = gpu::Runtime::shared_cpu()->capture_of(stream) == 0;
  if (counts) {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  gpu::cpu_launch(stream, [self = shared_from_this(), counts, body = std::move(body)] {
    self->run(body);
    if (!counts) return;
    const std::lock_guard lock(self->mutex_);
    if (--self->in_flight_ == 0) self->idle_.notify_all();
  });
}

void BlockingCommunicator::run(const Body& body) {
  // After a failure the ranks are at different operations, so none may run.
  if (state() != abi::kSuccess) return;
  try {
    set_error(body(*this));
  } catch (const std::exception& e) {
    set_error(kInternalError, e.what());
  }
}

void BlockingCommunicator::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return in_flight_ == 0; });
}

abi::Result BlockingCommunicator::set_error(abi::Result result, const std::string& text) {
  if (result == abi::kSuccess) return result;
  const std::lock_guard lock(mutex_);
  if (state_ != abi::kSuccess) return result;
  state_ = result;
  text_ = text;
  if (text.empty() && library_.GetLastError != nullptr)
    if (const char* theirs = library_.GetLastError(communicator_)) text_ = theirs;
  return result;
}

abi::Result BlockingCommunicator::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

const char* BlockingCommunicator::last_error() const {
  const std::lock_guard lock(mutex_);
  return text_.c_str();  // it is set only once
}

abi::RedOp BlockingCommunicator::add_premul_factor(Element factor) {
  const std::lock_guard lock(mutex_);
  const auto op = static_cast<abi::RedOp>(next_op_++);
  factors_[op] = std::make_shared<const Element>(std::move(factor));
  return op;
}

void BlockingCommunicator::remove_premul_factor(abi::RedOp op) {
  const std::lock_guard lock(mutex_);
  factors_.erase(op);
}

std::shared_ptr<const BlockingCommunicator::Element> BlockingCommunicator::factor_of(
    abi::RedOp op) const {
  const std::lock_guard lock(mutex_);
  const auto found = factors_.find(op);
  return found == factors_.end() ? nullptr : found->second;
}

}  // namespace torch::comms::nccl::host
