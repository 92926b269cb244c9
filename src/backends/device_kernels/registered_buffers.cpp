#include "backends/device_kernels/registered_buffers.hpp"

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "core/options/hint_table.hpp"
#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/host/selection_rows.hpp"

namespace torch::comms::ctran {

RegisteredBufferMode parse_registered_mode(const Hints& hints, RegisteredBufferMode fallback) {
  for (const char* const name : {hint::kRegistered.name, hint::kRegistered.alias}) {
    const auto found = hints.find(name);
    if (found == hints.end()) continue;
    if (found->second == "copies") return RegisteredBufferMode::kCopies;
    try {
      return string_to_bool(found->second) ? RegisteredBufferMode::kYes : RegisteredBufferMode::kNo;
    } catch (const CommError& error) {
      throw CommError(Errc::kInvalidArgument,
                      "hint " + found->first + ": " + error.why() + ", or copies");
    }
  }
  return fallback;
}

kernels::CopyMethod copy_method_of(RegisteredBufferMode mode) {
  return mode == RegisteredBufferMode::kCopies ? kernels::CopyMethod::kCopyEngine
                                               : kernels::CopyMethod::kAutomatic;
}

WindowedOperand windowed_operand(const kernels::KernelCall& call, int ranks) {
  const size_t bytes = call.count * size_of(call.dtype);
  if (!kernels::is_reduction(call.collective))
    return {call.output, bytes * kernels::parts_of(call.collective, ranks)};
  const bool has_parts = call.collective == kernels::Collective::kReduceScatter;
  return {call.input, has_parts ? bytes * static_cast<size_t>(ranks) : bytes};
}

}  // namespace torch::comms::ctran
