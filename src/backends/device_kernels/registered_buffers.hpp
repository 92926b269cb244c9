#pragma once

#include <cstddef>
#include <cstdint>

#include <torchcomms/options.hpp>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"

// When the ranks write each other's outputs themselves, or read each other's operands where these
// lie, because they are in memory that all of them have registered: in windows. Nobody is asked;
// each rank finds out for itself.
namespace torch::comms::ctran {

// Who writes outputs that are in windows, and reads operands there.
enum class RegisteredBufferMode : uint8_t {
  kNo,      // as of those that are not
  kYes,     // the peers' kernels
  kCopies,  // copy engines; of all-reduces they take on what kernels have made, else as kYes
};

// Hint `ctran::registered` or `ncclx::registered`, of a communicator or of one call: false, true or
// copies; `otherwise` where it is not given. With it a user promises of collectives that have
// outputs on all ranks, and of reductions' inputs: if such a tensor is in a window on one rank it
// is so on all, in the same one, wherever; with copies that outputs, and tensors of all-reduces,
// are at the same place of it. Throws CommError(kInvalidArgument) without context.
RegisteredBufferMode parse_registered_mode(
    const Hints& hints, RegisteredBufferMode otherwise = RegisteredBufferMode::kNo);
kernels::CopyMethod copy_method_of(RegisteredBufferMode wish);

// Bytes of a call's largest buffer from which the hint holds: below, the ranks would wait longer
// for each other's places than it takes to copy. Measured with two H100 at 16 MB, as shares of the
// time of plain tensors: broadcast 0.97, gathers and all_reduce 1.01 to 1.03, reduce_scatter 1.15,
// reduce 1.19, messages 0.92 to 1.02; with 16 blocks, or 32, in the place of 48 to 128. At 64 MB
// all but reduce are faster.
inline constexpr size_t kMinRegisteredBytes = size_t{8} << 20;

// Of a call that is for regions: what has to be in one, all of its output, or of its input.
struct WindowedOperand {
  const void* at;
  size_t bytes;
};
WindowedOperand windowed_operand(const kernels::KernelCall& call, int ranks);

}  // namespace torch::comms::ctran
