#include <torchcomms/base/error.hpp>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/windows/nccl_allocator.hpp"
#include "core/comm/error_context.hpp"
#include "core/work/interruptible_call.hpp"

// NcclApiBackend: registration of memory, and the allocator.
namespace torch::comms {

template <class Body>
void NcclApiBackend::with_registrations(const char* op, const at::Tensor& tensor,
                                        const Body& body) {
  const Context context{.op = op, .comm = name_, .rank = rank_};
  if (!launch_queue_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized", context);
  if (tensor.defined() && tensor.device() != device_)
    throw CommError(
        Errc::kInvalidArgument,
        "the tensor is on " + tensor.device().str() + ", the communicator on " + device_.str(),
        context);
  try {
    // The call is no operation; it only carries the timeout.
    const nccl::NcclCall call{OpName::new_window, name_, rank_, options_.timeout, false, false};
    auto wait = nccl::launch_wait(call);
    wait.context = [&context]() -> const Context& { return context; };
    with_context(context, [&] {
      body(launch_queue_->registrations(), launch_queue_->communicator(), wait, context);
    });
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void NcclApiBackend::tensor_register(const at::Tensor& tensor) {
  with_registrations("tensor_register", tensor,
                     [&](nccl::BufferRegistrations& registrations, nccl::Communicator& communicator,
                         const nccl::WaitOptions& wait, const Context& context) {
                       registrations.add(communicator, tensor, wait, context);
                     });
}

void NcclApiBackend::tensor_deregister(const at::Tensor& tensor) {
  with_registrations("tensor_deregister", tensor,
                     [&](nccl::BufferRegistrations& registrations, nccl::Communicator& communicator,
                         const nccl::WaitOptions& wait, const Context& context) {
                       registrations.remove(communicator, tensor, wait, context);
                     });
}

std::shared_ptr<c10::Allocator> NcclApiBackend::make_allocator() const {
  return with_context([] { return Context{.op = "get_mem_allocator"}; },
                      [&] { return nccl::make_allocator(vendor_); });
}

}  // namespace torch::comms
