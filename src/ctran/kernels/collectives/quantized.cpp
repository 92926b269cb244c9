#include "ctran/kernels/collectives/quantized.hpp"

#include "ctran/kernels/host/algorithm_table.hpp"
#include "ctran/kernels/host/call_fingerprint.hpp"

namespace torch::comms::ctran::kernels {

QuantizedPlan plan_of(const TeamDescriptor& team, const QuantizedReduceScatter& call) {
  // The kernel runs as a reduce-scatter of bfloat16, except where its elements come from.
  KernelCall kernel_call{};
  kernel_call.collective = Collective::kReduceScatter;
  kernel_call.algorithm = call.algorithm;
  kernel_call.dtype = Dtype::kBFloat16;
  kernel_call.op = call.is_average ? ReduceOpCode::kAverage : ReduceOpCode::kSum;
  kernel_call.blocks = call.blocks;
  kernel_call.count = call.count;
  kernel_call.input = call.input;
  kernel_call.output = call.output;
  kernel_call.timeout_ns = call.timeout_ns;

  QuantizedPlan none{};
  const bool has_memory = call.seed != nullptr &&
                          (call.count == 0 || (call.input != nullptr && call.output != nullptr));
  if (!has_memory || !is_valid(team.size, kernel_call) ||
      call.count > SIZE_MAX / sizeof(float) / kMaxRanks)
    return none;
  KernelAlgorithmChoice choice{call.algorithm, call.blocks == 0 ? kMostBlocks : call.blocks};
  if (choice.algorithm == KernelAlgorithm::kAutomatic)
    choice = choose_algorithm(team.size, kernel_call);
  if (!can_run(team.size, kernel_call, choice.algorithm, choice.blocks)) return none;

  QuantizedPlan plan{plan_of(team.size, kernel_call, choice.algorithm, choice.blocks), {}};
  QuantizedParams& p = plan.params;
  static_cast<CollectiveParams&>(p) = params_of(team, kernel_call, plan);
  p.collective = Collective::kQuantizedReduceScatter;
  p.fingerprint = fingerprint_of(call, plan_fingerprint(plan));
  p.seed = call.seed;
  p.count = call.count;
  p.send_stride = p.output_bytes = call.count * sizeof(float);
  p.own = p.input + static_cast<size_t>(team.rank) * p.send_stride;
  p.nan = nan_of(Dtype::kFloat32);
  const auto address_bits = reinterpret_cast<uintptr_t>(call.input) |
                            reinterpret_cast<uintptr_t>(call.output) | p.send_stride;
  p.is_aligned = address_bits % 16 == 0;
  return plan;
}

}  // namespace torch::comms::ctran::kernels
