#include "backends/xccl/xccl_backend.hpp"

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "vendor/blocking_adapter/async_facade.hpp"

namespace torch::comms {
namespace {

// Without worker threads the library works in the calling threads. That is safe only for one
// communicator: two at a time corrupt each other and crash.
constexpr const char* kWorkerVariable = "CCL_WORKER_OFFLOAD";

}  // namespace

nccl::VendorLibrary TorchCommXCCL::load_library() const {
  auto library = nccl::VendorLibrary::load(vendor());
  if (!library.is_blocking()) return library;
  if (base::env_text(kWorkerVariable) == "0")
    throw CommError(Errc::kBackendUnavailable,
                    "backend '" + std::string(getBackendName()) + "' cannot work with " +
                        kWorkerVariable +
                        "=0: oneCCL on the CPU is not safe in several threads without "
                        "its workers. Unset it");
  return nccl::make_async_facade(library);
}

bool TorchCommXCCL::is_on_host() const {
  return library() != nullptr ? library()->is_blocking() : nccl::selects_host_memory(vendor());
}

Capabilities TorchCommXCCL::capabilities() const {
  auto can = NcclApiBackend::capabilities();
  if (is_on_host())
    for (const auto op : {OpName::send, OpName::recv, OpName::batch_op_issue})
      can.operations.reset(static_cast<size_t>(op));
  return can;
}

std::map<std::string, std::string> TorchCommXCCL::describe_entries() const {
  auto notes = NcclApiBackend::describe_entries();
  if (is_on_host()) notes["messages"] = "none: oneCCL on the CPU has no send and recv";
  return notes;
}

}  // namespace torch::comms
