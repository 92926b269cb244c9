#include "interop/region.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/log.hpp"

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

WorkPtr CoalescedMessages::issue(TorchComm& comm, const BatchP2POptions& options) {
  auto batch = comm.batch_op_create();
  {
    const std::lock_guard lock(mutex_);
    batch.ops = std::exchange(ops_, {});
  }
  try {
    auto work = batch.issue(/*async_op=*/true, options);
    follow(work);
    return work;
  } catch (...) {
    setStatus(WorkStatus::ERROR, std::current_exception());
    throw;
  }
}

void CoalescedMessages::follow(const WorkPtr& batch) {
  {
    const std::lock_guard lock(mutex_);
    sent_ = batch;
  }
  setStatus(WorkStatus::INPROGRESS);
  // Weak, as this holds the batch.
  const auto self = c10::intrusive_ptr<CoalescedMessages>::reclaim_copy(this);
  batch->registerWorkEndHook(
      [weak = c10::weak_intrusive_ptr<CoalescedMessages>(self), batch = batch.get()] {
        if (const auto messages = weak.lock()) messages->setStatus(batch->status(), batch->error());
      });
}

void CoalescedMessages::give_up(const std::string& why) {
  if (status() != WorkStatus::NOT_STARTED) return;
  std::vector<P2POp> lost;
  {
    const std::lock_guard lock(mutex_);
    lost = std::exchange(ops_, {});
  }
  setStatus(WorkStatus::ERROR,
            std::make_exception_ptr(CommError(
                Errc::kInvalidArgument,
                "a coalescing region ended without its sends and receives, of which there were " +
                    std::to_string(lost.size()) + ": " + why,
                {.op = "coalescing", .comm = comm_name_})));
}

WorkPtr CoalescedMessages::sent() const {
  const std::lock_guard lock(mutex_);
  return sent_;
}

WorkPtr CoalescedMessages::awaited() {
  if (auto batch = sent()) return batch;
  rethrowIfFailed();
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !std::exchange(warned_, true);
  }
  if (first)
    base::log(base::LogLevel::kWarning,
              "communicator '" + comm_name_ +
                  "': a send or receive was waited for between startCoalescing() and "
                  "endCoalescing(), with which it goes out; if an exception has skipped that, it "
                  "has not been sent");
  return sent();
}

void CoalescedMessages::wait() {
  if (const auto batch = awaited()) batch->wait();
}
void CoalescedMessages::waitBlocking() {
  if (const auto batch = awaited()) batch->waitBlocking();
}
void CoalescedMessages::hostSynchronize() {
  if (const auto batch = awaited()) batch->hostSynchronize();
}

std::chrono::milliseconds CoalescedMessages::getTimeout() const {
  const auto batch = sent();
  return batch ? batch->getTimeout() : TorchWork::getTimeout();
}

bool CoalescedMessages::endsByWaitOnly() const noexcept {
  const auto batch = sent();
  return batch && batch->endsByWaitOnly();
}

bool CoalescedMessages::waitBlocksHost() const noexcept {
  const auto batch = sent();
  return !batch || batch->waitBlocksHost();
}

void CoalescedMessages::poll() noexcept {
  if (const auto batch = sent()) batch->isCompleted();
}

BackendWrapper::Region::Region(std::shared_ptr<TorchComm> comm)
    : comm_(std::move(comm)),
      messages_(c10::make_intrusive<CoalescedMessages>(std::string(comm_->getCommName()))) {}

BackendWrapper::Region::~Region() {
  if (messages_->count() > 0) give_up("its group is gone");
}

bool BackendWrapper::Region::is_open() const {
  return messages_->status() == WorkStatus::NOT_STARTED;
}

torch::comms::WorkPtr BackendWrapper::Region::add(const P2POp& message) {
  messages_->add(message);
  return c10::make_intrusive<CoalescedMessage>(messages_);
}

void BackendWrapper::Region::keep(const std::vector<torch::comms::WorkPtr>& works,
                                  const Tensors& outputs) {
  std::erase_if(works_, [](const auto& work) { return work->status() == WorkStatus::COMPLETED; });
  works_.insert(works_.end(), works.begin(), works.end());
  std::erase_if(outputs_, [](const auto& tensor) { return tensor.expired(); });
  for (const auto& tensor : outputs) outputs_.emplace_back(tensor.getIntrusivePtr());
}

BackendWrapper::WorkPtr BackendWrapper::Region::end(const BatchP2POptions& options) {
  if (messages_->count() > 0) {
    if (const auto error = messages_->error()) std::rethrow_exception(error);
    works_.push_back(messages_->issue(*comm_, options));
  }
  if (works_.empty()) works_.push_back(completedWork());
  Tensors outputs;
  for (const auto& weak : outputs_)
    if (auto tensor = weak.lock()) outputs.emplace_back(std::move(tensor));
  return c10::make_intrusive<WorkWrapper>(std::move(works_), std::move(outputs),
                                          c10d::OpType::COALESCED);
}

}  // namespace torch::comms
