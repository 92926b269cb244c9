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

// The sends and receives of a coalescing region, before and after their batch is issued.
// Threads: any for require_batch_work() and timeout(); the region's thread for the others.
class CoalescedMessages {
 public:
  explicit CoalescedMessages(std::string comm_name);

  // Returns: true until the messages are issued or canceled.
  bool is_open() const;
  void add(const P2POp& message);
  size_t count() const;  // number of messages added
  // Issues the batch. Throws: what batch_op_issue() throws, or the reason of cancel().
  WorkPtr issue(TorchComm& comm, const BatchP2POptions& options);
  // Drops the messages for the reason `why`. Does nothing after the batch was issued or canceled.
  void cancel(const std::string& why);

  // Returns: the work of the batch, or null before it is issued. The first call that returns null
  // logs a warning, because a region that has not ended yet cannot be distinguished from one that
  // an exception has left.
  // Throws: CommError(kInvalidArgument) if the messages were canceled.
  WorkPtr require_batch_work();
  // Returns: the timeout of the batch, or nothing before it is issued.
  std::optional<std::chrono::milliseconds> timeout() const;

 private:
  const std::string comm_name_;
  mutable std::mutex mutex_;  // guards all members below
  bool is_open_ = true, has_warned_ = false;
  std::vector<P2POp> ops_;
  size_t count_ = 0;
  WorkPtr batch_work_;
  std::exception_ptr error_;  // why the messages were not sent
};

// The work of one message in a coalescing region. It is complete from the beginning, because
// programs expect that of messages inside the region. After the end of the region, wait() waits for
// the batch.
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

// The calls from startCoalescing() to endCoalescing(). A region that an exception has left may
// never end. Therefore it keeps no work that completed successfully, and no tensors other than
// those of its messages.
// Threads: as BackendWrapper.
class BackendWrapper::CoalescingRegion {
 public:
  explicit CoalescingRegion(std::shared_ptr<TorchComm> comm);
  ~CoalescingRegion();
  CoalescingRegion(const CoalescingRegion&) = delete;
  CoalescingRegion& operator=(const CoalescingRegion&) = delete;

  // Returns: false after the region was canceled. Then messages are sent at once, and a new region
  // may begin.
  bool is_open() const;
  void cancel(const std::string& why) { messages_->cancel(why); }

  // Adds a message to the open region. Returns: the work of the message.
  torch::comms::WorkPtr add(const P2POp& message);
  // Retains the works and outputs of other calls inside the region.
  void retain(const std::vector<torch::comms::WorkPtr>& works, const Tensors& outputs);
  // Ends the region. Returns: the work of all its calls. Throws: the reason if the messages were
  // canceled.
  WorkPtr end(const BatchP2POptions& options);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  std::shared_ptr<TorchComm> comm_;
  std::shared_ptr<CoalescedMessages> messages_;
  std::vector<torch::comms::WorkPtr> works_;
  std::vector<WeakTensor> outputs_;
};

// One c10d call on the group, as profilers show it. If the call throws, it cancels the open region,
// because the exception may skip endCoalescing().
class BackendWrapper::C10dCallScope : public ProfilerSpan {
 public:
  C10dCallScope(const BackendWrapper& group, const char* name, at::TensorList tensors)
      : ProfilerSpan(*group.comm_, name, tensors), group_(group), name_(name) {}
  ~C10dCallScope() {
    if (group_.coalescing_region_ && std::uncaught_exceptions() > exceptions_)
      group_.coalescing_region_->cancel(std::string(name_) + " failed in the region");
  }
  C10dCallScope(const C10dCallScope&) = delete;
  C10dCallScope& operator=(const C10dCallScope&) = delete;

 private:
  const BackendWrapper& group_;
  const char* name_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace torch::comms
