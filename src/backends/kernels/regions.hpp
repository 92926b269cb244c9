#pragma once

#include <cstddef>

#include <torchcomms/options.hpp>

#include "ctran/kernels/library.hpp"

// When the ranks write each other's outputs themselves, because these are in memory that all of
// them have registered: in windows. Nobody is asked; each rank finds out for itself.
namespace torch::comms::ctran {

inline constexpr const char* kRegistered = "ctran::registered";

// Hint `ctran::registered` or `ncclx::registered`, of a communicator or of one call; `otherwise`
// where it is not given. With it a user promises of collectives that have outputs on all ranks: if
// an output is in a window on one rank it is so on all, in the same one, wherever in it. Throws
// CommError(kInvalidArgument) without context.
bool are_outputs_registered(const Hints& hints, bool otherwise);

// Bytes of a call's largest buffer from which this is faster: below, the ranks would wait longer
// for each other's places than it takes to copy. By the model of hops and bytes, not measured.
inline constexpr size_t kLeastRegistered = size_t{8} << 20;

// Of a call that is for regions: of all of its output.
size_t output_bytes(const kernels::Call& call, int ranks);

}  // namespace torch::comms::ctran
