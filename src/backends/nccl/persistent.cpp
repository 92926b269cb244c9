#include "backends/nccl/persistent.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/call.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/vendor_backend.hpp"
#include "core/dtype_name.hpp"
#include "core/validate.hpp"

// An all_gather into one place again and again.
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

nccl::Persistent& TorchCommVendor::persistent(AllGatherPHandle handle, const char* op) const {
  const auto found = persistent_.find(handle);
  require(
      found != persistent_.end(),
      "the handle is none of this communicator's: it was freed, or another one's all_gather_p_init "
      "returned it",
      {.op = op, .comm = name_, .rank = rank_});
  return *found->second;
}

TorchCommBackend::AllGatherPHandle TorchCommVendor::all_gather_p_init(
    at::Tensor& output, const AllGatherPInitOptions& options) {
  call(OpName::all_gather_single, false, options);
  const Context context{.op = "all_gather_p_init", .comm = name_, .rank = rank_};
  require_plain("output", output, device_, context);
  require(output.numel() % size_ == 0,
          "output has " + std::to_string(output.numel()) +
              " elements, which do not divide by the " + std::to_string(size_) + " ranks",
          context);
  auto made = std::make_unique<nccl::Persistent>(
      nccl::Persistent{output, OperationOptions(options), lane_});
  if (library_->CommRegister != nullptr && library_->CommDeregister != nullptr) {
    tensor_register(output);
    made->is_registered = true;
  }
  void* const handle = made.get();
  persistent_.emplace(handle, std::move(made));
  return handle;
}

WorkPtr TorchCommVendor::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input,
                                           bool async_op, const AllGatherPExecOptions& options) {
  call(OpName::all_gather_single, async_op, options);
  const Context context{.op = "all_gather_p_exec", .comm = name_, .rank = rank_};
  const auto& prepared = persistent(handle, "all_gather_p_exec");
  require(prepared.members.lock() == lane_,
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
  AllGatherSingleOptions now{prepared.options};
  if (options.timeout != kNoTimeout) now.timeout = options.timeout;
  for (const auto& [key, value] : options.hints) now.hints[key] = value;
  auto output = prepared.output;
  return all_gather_single(output, input, async_op, now);
}

void TorchCommVendor::all_gather_p_free(AllGatherPHandle handle) {
  auto& prepared = persistent(handle, "all_gather_p_free");
  // Else the library's memory of it went with those members.
  const bool is_known = prepared.is_registered && lane_ && prepared.members.lock() == lane_ &&
                        !lane_->communicator().failure();
  const auto gone = persistent_.extract(handle);
  if (is_known) tensor_deregister(gone.mapped()->output);
}

}  // namespace torch::comms
