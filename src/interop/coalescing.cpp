#include "interop/coalescing.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"

namespace torch::comms {

CoalescedMessages::CoalescedMessages(std::string comm_name) : comm_name_(std::move(comm_name)) {}

void CoalescedMessages::add(const P2POp& message) {
  const std::lock_guard lock(mutex_);
  ops_.push_back(message);
  ++count_;
}

size_t CoalescedMessages::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

bool CoalescedMessages::is_open() const {
  const std::lock_guard lock(mutex_);
  return is_open_;
}

WorkPtr CoalescedMessages::issue(TorchComm& comm, const BatchP2POptions& options) {
  auto batch = comm.batch_op_create();
  {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    is_open_ = false;
    batch.ops = std::exchange(ops_, {});
  }
  WorkPtr sent;
  std::exception_ptr error;
  try {
    sent = batch.issue(/*async_op=*/true, options);
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    batch_work_ = sent;
    error_ = error;
  }
  if (error) std::rethrow_exception(error);
  return sent;
}

void CoalescedMessages::cancel(const std::string& why) {
  std::vector<P2POp> lost;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_open_, false)) return;
  lost.swap(ops_);
  error_ = std::make_exception_ptr(
      CommError(Errc::kInvalidArgument,
                "the sends and receives of a coalescing region were not issued (" +
                    std::to_string(lost.size()) + " in all): " + why,
                {.op = "coalescing", .comm = comm_name_}));
}

WorkPtr CoalescedMessages::require_batch_work() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (!batch_work_ && !std::exchange(has_warned_, true))
    base::log(base::LogLevel::kWarning,
              "communicator '" + comm_name_ +
                  "': wait() was called on a send or receive before endCoalescing(), which issues "
                  "it. If an exception skipped endCoalescing(), the message was not sent");
  return batch_work_;
}

std::optional<std::chrono::milliseconds> CoalescedMessages::timeout() const {
  const std::lock_guard lock(mutex_);
  return batch_work_ ? std::optional(batch_work_->getTimeout()) : std::nullopt;
}

BackendWrapper::CoalescingRegion::CoalescingRegion(std::shared_ptr<TorchComm> comm)
    : comm_(std::move(comm)),
      messages_(std::make_shared<CoalescedMessages>(std::string(comm_->getCommName()))) {}

BackendWrapper::CoalescingRegion::~CoalescingRegion() {
  if (messages_->count() > 0) cancel("the process group was destroyed");
}

bool BackendWrapper::CoalescingRegion::is_open() const { return messages_->is_open(); }

torch::comms::WorkPtr BackendWrapper::CoalescingRegion::add(const P2POp& message) {
  messages_->add(message);
  return c10::make_intrusive<CoalescedMessage>(messages_);
}

void BackendWrapper::CoalescingRegion::retain(const std::vector<torch::comms::WorkPtr>& works,
                                              const Tensors& outputs) {
  std::erase_if(works_, [](const auto& work) { return work->status() == WorkStatus::COMPLETED; });
  works_.insert(works_.end(), works.begin(), works.end());
  std::erase_if(outputs_, [](const auto& tensor) { return tensor.expired(); });
  for (const auto& tensor : outputs) outputs_.emplace_back(tensor.getIntrusivePtr());
}

BackendWrapper::WorkPtr BackendWrapper::CoalescingRegion::end(const BatchP2POptions& options) {
  if (messages_->count() > 0) works_.push_back(messages_->issue(*comm_, options));
  if (works_.empty()) works_.push_back(completedWork());
  Tensors outputs;
  for (const auto& weak : outputs_)
    if (auto tensor = weak.lock()) outputs.emplace_back(std::move(tensor));
  return c10::make_intrusive<WorkWrapper>(std::move(works_), std::move(outputs),
                                          c10d::OpType::COALESCED);
}

}  // namespace torch::comms
