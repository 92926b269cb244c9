#include <torchcomms/base/error.hpp>

#include "backends/nccl/allocator.hpp"
#include "backends/nccl/call.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/vendor_backend.hpp"
#include "core/error_context.hpp"
#include "core/interruptible_call.hpp"

// Memory ahead of operations.
namespace torch::comms {

template <class Body>
void TorchCommVendor::with_memory(const char* op, const at::Tensor& tensor, const Body& body) {
  const Context context{.op = op, .comm = name_, .rank = rank_};
  if (!lane_) throw CommError(Errc::kFinalized, "the communicator is not initialized", context);
  if (tensor.defined() && tensor.device() != device_)
    throw CommError(
        Errc::kInvalidArgument,
        "the tensor is on " + tensor.device().str() + ", the communicator on " + device_.str(),
        context);
  try {
    // Of no operation: it lends its limit.
    const nccl::Call call{OpName::new_window, name_, rank_, options_.timeout, false, false};
    auto wait = nccl::launch_wait(call);
    wait.context = [&context]() -> const Context& { return context; };
    with_context(context,
                 [&] { body(lane_->registrations(), lane_->communicator(), wait, context); });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void TorchCommVendor::tensor_register(const at::Tensor& tensor) {
  with_memory("tensor_register", tensor,
              [&](nccl::Registrations& all, nccl::Communicator& its, const nccl::WaitOptions& wait,
                  const Context& context) { all.add(its, tensor, wait, context); });
}

void TorchCommVendor::tensor_deregister(const at::Tensor& tensor) {
  with_memory("tensor_deregister", tensor,
              [&](nccl::Registrations& all, nccl::Communicator& its, const nccl::WaitOptions& wait,
                  const Context& context) { all.remove(its, tensor, wait, context); });
}

std::shared_ptr<c10::Allocator> TorchCommVendor::make_allocator() const {
  return with_context([] { return Context{.op = "get_mem_allocator"}; },
                      [&] { return nccl::make_allocator(vendor_); });
}

}  // namespace torch::comms
