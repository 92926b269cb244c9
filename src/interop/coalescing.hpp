#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <torchcomms/backend_wrapper.hpp>
#include <torchcomms/batch.hpp>

#include "interop/profiler_span.hpp"

namespace torch::comms {

// The sends and receives of a region, until and after their batch has gone out.
//
// Threads: require_batch_work() and timeout() from any; the others are the region's.
class CoalescedMessages {
 public:
  explicit CoalescedMessages(std::string comm_name);

  // Neither sent nor given up.
  bool is_open() const;
  void add(const P2POp& message);
  size_t count() const;  // that were added
  // Sends the batch. Throws what that throws, or why they were given up.
  WorkPtr issue(TorchComm& comm, const BatchP2POptions& options);
  // They will not go out, for the reason `why`. Nothing happens where they have gone out or have
  // been given up.
  void cancel(const std::string& why);

  // The batch; throws CommError(kInvalidArgument) where it was given up. Null before it has gone
  // out, which the log is told: nobody can tell a region that has not ended yet from one that an
  // exception has left.
  WorkPtr require_batch_work();
  // That of the batch; nothing before.
  std::optional<std::chrono::milliseconds> timeout() const;

 private:
  const std::string comm_name_;
  mutable std::mutex mutex_;  // guards what follows
  bool is_open_ = true, has_warned_ = false;
  std::vector<P2POp> ops_;
  size_t count_ = 0;
  WorkPtr batch_work_;
  std::exception_ptr error_;  // why they were not sent
};

// What stands for one of them: complete from the beginning, as programs expect it of messages
// between the start and the end. From the end on its poll_once() is the batch's.
class CoalescedMessage final : public TorchWork {
 public:
  explicit CoalescedMessage(std::shared_ptr<CoalescedMessages> all) : all_(std::move(all)) {
    setStatus(WorkStatus::COMPLETED);
  }
  void wait() override {
    if (const auto batch = all_->require_batch_work()) batch->wait();
  }
  void waitBlocking() override {
    if (const auto batch = all_->require_batch_work()) batch->waitBlocking();
  }
  void hostSynchronize() override {
    if (const auto batch = all_->require_batch_work()) batch->hostSynchronize();
  }
  std::chrono::milliseconds getTimeout() const override {
    return all_->timeout().value_or(TorchWork::getTimeout());
  }

 private:
  const std::shared_ptr<CoalescedMessages> all_;
};

// From startCoalescing() to endCoalescing(). One that an exception has left may never end, so it
// keeps no work that went well, and no tensor but those of its messages.
//
// Threads: as the wrapper.
class BackendWrapper::CoalescingRegion {
 public:
  explicit CoalescingRegion(std::shared_ptr<TorchComm> comm);
  ~CoalescingRegion();
  CoalescingRegion(const CoalescingRegion&) = delete;
  CoalescingRegion& operator=(const CoalescingRegion&) = delete;

  // False once it was given up: messages then go out by themselves, and a new one may begin.
  bool is_open() const;
  void cancel(const std::string& why) { messages_->cancel(why); }

  // Only while it is open. The work of the message.
  torch::comms::WorkPtr add(const P2POp& message);
  // What was called in between.
  void retain(const std::vector<torch::comms::WorkPtr>& works, const Tensors& outputs);
  // The work of all that. Throws the reason where messages were given up.
  WorkPtr end(const BatchP2POptions& options);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  std::shared_ptr<TorchComm> comm_;
  std::shared_ptr<CoalescedMessages> messages_;
  std::vector<torch::comms::WorkPtr> works_;
  std::vector<WeakTensor> outputs_;
};

// A call on the group, as profilers see it. One that throws gives the region up, since the
// exception may leave it without its end.
class BackendWrapper::C10dCallScope : public ProfilerSpan {
 public:
  C10dCallScope(const BackendWrapper& group, const char* name, at::TensorList tensors)
      : ProfilerSpan(*group.comm_, name, tensors), group_(group), name_(name) {}
  ~C10dCallScope() {
    if (group_.coalescing_region_ && std::uncaught_exceptions() > exceptions_)
      group_.coalescing_region_->cancel(std::string(name_) + " failed in it");
  }
  C10dCallScope(const C10dCallScope&) = delete;
  C10dCallScope& operator=(const C10dCallScope&) = delete;

 private:
  const BackendWrapper& group_;
  const char* name_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace torch::comms
