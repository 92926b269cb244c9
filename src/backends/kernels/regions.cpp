#include "backends/kernels/regions.hpp"

#include "core/hint.hpp"
#include "ctran/kernels/rows.hpp"

namespace torch::comms::ctran {

bool are_outputs_registered(const Hints& hints, bool otherwise) {
  return flag_of(hints, kRegistered, flag_of(hints, "ncclx::registered", otherwise));
}

size_t output_bytes(const kernels::Call& call, int ranks) {
  return call.count * size_of(call.dtype) * kernels::parts_of(call.collective, ranks);
}

}  // namespace torch::comms::ctran
