#include "backends/nccl/api/persistent_all_gather.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "core/comm/validate.hpp"
#include "core/options/dtype_name.hpp"

// NcclApiBackend: all_gather_p_init(), all_gather_p_exec() and all_gather_p_free().
namespace torch::comms {
namespace {

void require(bool holds, const std::string& why, const Context& context) {
  if (!holds) throw CommError(Errc::kInvalidArgument, why, context);
}

void require_plain(const char* what, const at::Tensor& tensor, const at::Device& device,
                   const Context& context) {
  const std::string name = what;
  require(tensor.defined(), name + " is an undefined tensor", context);
  require(tensor.device() == device,
          name + " is on " + tensor.device().str() + ", the communicator on " + device.str(),
          context);
  require(tensor.layout() == at::kStrided && tensor.is_contiguous(), format_not_contiguous(name),
          context);
}

}  // namespace

nccl::PersistentAllGather& NcclApiBackend::require_persistent(AllGatherPHandle handle,
                                                              const char* op) const {
  const auto found = persistent_.find(handle);
  require(found != persistent_.end(),
          "the handle is not valid for this communicator: it was freed, or all_gather_p_init "
          "of another communicator returned it",
          {.op = op, .comm = name_, .rank = rank_});
  return *found->second;
}

TorchCommBackend::AllGatherPHandle NcclApiBackend::all_gather_p_init(
    at::Tensor& output, const AllGatherPInitOptions& options) {
  begin_call(OpName::all_gather_single, false, options);
  const Context context{.op = "all_gather_p_init", .comm = name_, .rank = rank_};
  require_plain("output", output, device_, context);
  require(output.numel() % size_ == 0,
          "output has " + std::to_string(output.numel()) +
              " elements, which do not divide by the " + std::to_string(size_) + " ranks",
          context);
  auto prepared = std::make_unique<nccl::PersistentAllGather>(
      nccl::PersistentAllGather{output, OperationOptions(options), launch_queue_});
  if (library_->CommRegister != nullptr && library_->CommDeregister != nullptr) {
    tensor_register(output);
    prepared->is_registered = true;
  }
  void* const handle = prepared.get();
  persistent_.emplace(handle, std::move(prepared));
  return handle;
}

WorkPtr NcclApiBackend::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input,
                                          bool async_op, const AllGatherPExecOptions& options) {
  begin_call(OpName::all_gather_single, async_op, options);
  const Context context{.op = "all_gather_p_exec", .comm = name_, .rank = rank_};
  const auto& prepared = require_persistent(handle, "all_gather_p_exec");
  require(prepared.queue.lock() == launch_queue_,
          "the handle was made for members that the communicator no longer has: call "
          "all_gather_p_init again after reconfigure()",
          context);
  require_plain("input", input, device_, context);
  require(input.scalar_type() == prepared.output.scalar_type(),
          std::string("input has dtype ") + dtype_name(input.scalar_type()) + ", output has " +
              dtype_name(prepared.output.scalar_type()) + "; they must be the same",
          context);
  require(input.numel() * size_ == prepared.output.numel(),
          "input has " + std::to_string(input.numel()) + " elements, expected " +
              std::to_string(prepared.output.numel() / size_) +
              " (output of all_gather_p_init, by " + std::to_string(size_) + " ranks)",
          context);
  AllGatherSingleOptions merged{prepared.options};
  if (options.timeout != kNoTimeout) merged.timeout = options.timeout;
  for (const auto& [key, value] : options.hints) merged.hints[key] = value;
  auto output = prepared.output;
  return all_gather_single(output, input, async_op, merged);
}

void NcclApiBackend::all_gather_p_free(AllGatherPHandle handle) {
  auto& prepared = require_persistent(handle, "all_gather_p_free");
  // Otherwise the registration was dropped with the former communicator.
  const bool is_known = prepared.is_registered && launch_queue_ &&
                        prepared.queue.lock() == launch_queue_ &&
                        !launch_queue_->communicator().failure();
  const auto removed = persistent_.extract(handle);
  if (is_known) tensor_deregister(removed.mapped()->output);
}

}  // namespace torch::comms
