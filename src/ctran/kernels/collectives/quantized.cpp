#include "ctran/kernels/collectives/quantized.hpp"

#include "ctran/kernels/host/algorithm_table.hpp"
#include "ctran/kernels/host/call_fingerprint.hpp"

namespace torch::comms::ctran::kernels {

QuantizedPlan plan_of(const TeamDescriptor& team, const QuantizedReduceScatter& call) {
  // The kernel runs as a reduce-scatter of bfloat16, except where its elements come from.
  KernelCall moved{};
  moved.collective = Collective::kReduceScatter;
  moved.algorithm = call.algorithm;
  moved.dtype = Dtype::kBFloat16;
  moved.op = call.is_average ? ReduceOpCode::kAverage : ReduceOpCode::kSum;
  moved.blocks = call.blocks;
  moved.count = call.count;
  moved.input = call.input;
  moved.output = call.output;
  moved.timeout_ns = call.timeout_ns;

  QuantizedPlan none{};
  const bool has_memory = call.seed != nullptr &&
                          (call.count == 0 || (call.input != nullptr && call.output != nullptr));
  if (!has_memory || !is_valid(team.size, moved) ||
      call.count > SIZE_MAX / sizeof(float) / kMaxRanks)
    return none;
  KernelAlgorithmChoice choice{call.algorithm, call.blocks == 0 ? kMostBlocks : call.blocks};
  if (choice.algorithm == KernelAlgorithm::kAutomatic) choice = choose_algorithm(team.size, moved);
  if (!can_run(team.size, moved, choice.algorithm, choice.blocks)) return none;

  QuantizedPlan made{plan_of(team.size, moved, choice.algorithm, choice.blocks), {}};
  QuantizedParams& p = made.params;
  static_cast<CollectiveParams&>(p) = params_of(team, moved, made);
  p.collective = Collective::kQuantizedReduceScatter;
  p.fingerprint = print_of(call, plan_fingerprint(made));
  p.seed = call.seed;
  p.count = call.count;
  p.send_stride = p.output_bytes = call.count * sizeof(float);
  p.own = p.input + static_cast<size_t>(team.rank) * p.send_stride;
  p.nan = nan_of(Dtype::kFloat32);
  const auto places = reinterpret_cast<uintptr_t>(call.input) |
                      reinterpret_cast<uintptr_t>(call.output) | p.send_stride;
  p.is_aligned = places % 16 == 0;
  return made;
}

}  // namespace torch::comms::ctran::kernels
