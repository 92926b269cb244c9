#pragma once

#include <cstddef>
#include <cstdint>

#include <torchcomms/options.hpp>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"

// Hint `registered`: when ranks write the outputs of peers directly, or read their operands
// directly, because these lie in windows that all ranks have registered. Ranks do not communicate
// about it: each finds out for itself.
namespace torch::comms::ctran {

// What writes outputs that are in windows, and reads operands there.
enum class RegisteredBufferMode : uint8_t {
  kNo,      // windows are not used
  kYes,     // the kernels of peers
  kCopies,  // copy engines; in an all_reduce they move what kernels have reduced; else as kYes
};

// Parses hint `ctran::registered` or `ncclx::registered` of a communicator or a call: false, true
// or copies. The hint is a promise of the user about outputs of collectives that have outputs on
// all ranks, and about inputs of reductions. If such a tensor is in a window on one rank, it is in
// the same window on all ranks, at any place. With copies, outputs and tensors of all_reduce are
// also at the same place of the window.
// Returns: `fallback` if the hint is not set.
// Throws: CommError(kInvalidArgument) without context.
RegisteredBufferMode parse_registered_mode(
    const Hints& hints, RegisteredBufferMode fallback = RegisteredBufferMode::kNo);
kernels::CopyMethod copy_method_of(RegisteredBufferMode mode);

// The bytes of a call's largest buffer from which the hint applies. Below, ranks would wait longer
// for each other's addresses than a copy takes. Measured with two H100 at 16 MB, as shares of the
// time of plain tensors: broadcast 0.97, gathers and all_reduce 1.01 to 1.03, reduce_scatter 1.15,
// reduce 1.19, messages 0.92 to 1.02. That holds with 16 blocks, or 32, instead of 48 to 128. At 64
// MB all but reduce are faster.
inline constexpr size_t kMinRegisteredBytes = size_t{8} << 20;

// The operand of a window collective that must lie in a window: all of its output, or of its input.
struct WindowedOperand {
  const void* at;
  size_t bytes;
};
WindowedOperand windowed_operand(const kernels::KernelCall& call, int ranks);

}  // namespace torch::comms::ctran
