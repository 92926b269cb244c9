#include <algorithm>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>

#include "backends/device_kernels/team_kernels.hpp"
#include "backends/nccl/streams/launch.hpp"
#include "backends/ncclx/ncclx_backend.hpp"
#include "core/comm/validate.hpp"
#include "core/options/dtype_name.hpp"

// TorchCommNCCLX: operations that only kernels can run, which read their sizes or their seed in
// device memory.
namespace torch::comms {
namespace {

// Checks the arguments of one call.
class DeviceCallChecker {
 public:
  DeviceCallChecker(const Context& context, const at::Device& device)
      : context_(context), device_(device) {}

  void require(bool holds, const std::string& why) const {
    if (!holds) throw CommError(Errc::kInvalidArgument, why, context_);
  }
  void plain(const std::string& name, const at::Tensor& tensor) const {
    require(tensor.defined(), name + " is an undefined tensor");
    require(tensor.device() == device_,
            name + " is on " + tensor.device().str() + ", the communicator on " + device_.str());
    require(tensor.layout() == at::kStrided && tensor.is_contiguous(), format_not_contiguous(name));
  }
  void dtype(const std::string& name, const at::Tensor& tensor, at::ScalarType expected) const {
    require(tensor.scalar_type() == expected, name + " has dtype " +
                                                  dtype_name(tensor.scalar_type()) + ", expected " +
                                                  dtype_name(expected));
  }
  void elements(const std::string& name, const at::Tensor& tensor, int64_t expected,
                const std::string& what) const {
    require(tensor.numel() == expected, name + " has " + std::to_string(tensor.numel()) +
                                            " elements, expected " + std::to_string(expected) +
                                            " (" + what + ")");
  }
  // Checks a tensor of int64 in device memory.
  void integers(const std::string& name, const at::Tensor& tensor, int64_t expected,
                const std::string& what) const {
    plain(name, tensor);
    dtype(name, tensor, at::kLong);
    elements(name, tensor, expected, what);
  }

 private:
  const Context& context_;
  const at::Device& device_;
};

// Copies as many elements as both tensors and both counts allow. The host does not read the counts.
void copy_to_itself(const at::Tensor& output, const at::Tensor& input,
                    const at::Tensor& output_count, const at::Tensor& input_count) {
  constexpr at::ScalarType kOfSize[] = {at::kByte, at::kShort, at::kInt, at::kLong,
                                        at::kComplexDouble};
  // The view has a dtype that all operators of torch support.
  const auto* const view_dtype =
      std::find_if(std::begin(kOfSize), std::end(kOfSize), [&](auto dtype) {
        return c10::elementSize(dtype) == static_cast<size_t>(output.element_size());
      });
  const auto common_count = std::min(input.numel(), output.numel());
  const auto begin_of = [&](const at::Tensor& tensor) {
    return tensor.view({-1}).view(*view_dtype).narrow(0, 0, common_count);
  };
  const auto from = begin_of(input), to = begin_of(output);
  const auto count = at::minimum(output_count, input_count).view({1});
  to.copy_(at::where(at::lt(at::arange(common_count, count.options()), count), from, to));
}

}  // namespace

bool TorchCommNCCLX::needs_kernels(const Context& context) {
  if (getSize() == 1) return false;
  before_collective();
  if (kernels() == nullptr)
    throw CommError(Errc::kUnsupported,
                    "this operation needs kernels over mapped memory, which are not available: " +
                        kernels_unavailable_reason_,
                    context);
  return true;
}

WorkPtr TorchCommNCCLX::completed_on_stream(const nccl::NcclCall& now, const at::Tensor& output) {
  return run(now, {}, {{&output}, {}},
             [](const nccl::NcclLaunch&) { return nccl::abi::Result(nccl::abi::kSuccess); });
}

WorkPtr TorchCommNCCLX::device_alltoallv_single(at::Tensor& output, const at::Tensor& input,
                                                const at::Tensor& output_counts,
                                                const at::Tensor& input_counts, bool async_op) {
  const auto now = begin_call(OpName::all_to_all_v_single, async_op, {}, "device_alltoallv_single");
  const auto context = now.context();
  const DeviceCallChecker check(context, getDevice());
  check.plain("output", output);
  check.plain("input", input);
  check.dtype("input", input, output.scalar_type());
  check.integers("output_split_sizes", output_counts, getSize(), "a size for each rank");
  check.integers("input_split_sizes", input_counts, getSize(), "a size for each rank");
  const auto source = nccl::overlap(input, output) ? input.clone() : input;
  if (!needs_kernels(context)) {
    copy_to_itself(output, source, output_counts, input_counts);
    return completed_on_stream(now, output);
  }
  ctran::kernels::AllToAllVDynamic exchange{};
  exchange.input = nccl::TensorBytes(source).data;
  exchange.output = nccl::TensorBytes(output).data;
  exchange.input_elements = static_cast<size_t>(source.numel());
  exchange.output_elements = static_cast<size_t>(output.numel());
  exchange.element_bytes = static_cast<size_t>(source.element_size());
  exchange.input_counts = input_counts.const_data_ptr<int64_t>();
  exchange.output_counts = output_counts.const_data_ptr<int64_t>();
  if (registered_mode_of({}) == ctran::RegisteredBufferMode::kYes) {
    exchange.requests_zero_copy = true;
    for (int peer = 0; peer < getSize(); ++peer)
      exchange.zero_copy_targets[peer] =
          kernels()->peer_address_of(peer, exchange.output, output.nbytes());
  }
  return run_kernels(now, {}, {{&output, &source, &output_counts, &input_counts}, {}},
                     [&](auto& kernels, gpu::NativeStream stream, uint64_t limit_ns) {
                       exchange.timeout_ns = limit_ns;
                       kernels.launch(exchange, stream);
                     });
}

WorkPtr TorchCommNCCLX::reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input,
                                                 const ReduceOp& op, const at::Tensor& seed,
                                                 bool async_op) {
  const auto now =
      begin_call(OpName::reduce_scatter_single, async_op, {}, "reduce_scatter_quantized");
  const auto context = now.context();
  const DeviceCallChecker check(context, getDevice());
  check.require(op.type() == RedOpType::SUM || op.type() == RedOpType::AVG,
                "op is " + std::string(toString(op.type())) + ", expected SUM or AVG");
  check.plain("output", output);
  check.plain("input", input);
  check.dtype("output", output, at::kFloat);
  check.dtype("input", input, at::kFloat);
  check.elements("input", input, output.numel() * getSize(), "ranks times output");
  check.integers("seed", seed, 1, "a seed");
  if (!needs_kernels(context)) {
    output.view({-1}).copy_(input.view({-1}));
    return completed_on_stream(now, output);
  }
  const auto part_bytes = output.nbytes();
  const bool in_place = nccl::TensorBytes(output).data ==
                        nccl::TensorBytes(input).data + static_cast<size_t>(getRank()) * part_bytes;
  const auto source = !in_place && nccl::overlap(input, output) ? input.clone() : input;
  ctran::kernels::QuantizedReduceScatter quantized{};
  quantized.count = static_cast<size_t>(output.numel());
  quantized.input = reinterpret_cast<const float*>(nccl::TensorBytes(source).data);
  quantized.output = reinterpret_cast<float*>(nccl::TensorBytes(output).data);
  quantized.seed = reinterpret_cast<const uint64_t*>(seed.const_data_ptr<int64_t>());
  quantized.is_average = op.type() == RedOpType::AVG;
  if (kernels()->team().needs_full_workspace(quantized) && !ensure_workspace(now))
    throw CommError(
        Errc::kResourceExhausted,
        "the operation needs the full kernel workspace, which could not be allocated: " +
            workspace_error(),
        context);
  return run_kernels(now, {}, {{&output, &source, &seed}, {}},
                     [&](auto& kernels, gpu::NativeStream stream, uint64_t limit_ns) {
                       quantized.timeout_ns = limit_ns;
                       kernels.launch(quantized, stream);
                     });
}

}  // namespace torch::comms
