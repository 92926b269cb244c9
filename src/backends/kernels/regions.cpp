#include "backends/kernels/regions.hpp"

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "core/hint_table.hpp"
#include "ctran/kernels/reducer_dispatch.hpp"
#include "ctran/kernels/selection_rows.hpp"

namespace torch::comms::ctran {

Registered registered_wish(const Hints& hints, Registered otherwise) {
  for (const char* const name : {hint::kRegistered.name, hint::kRegistered.alias}) {
    const auto found = hints.find(name);
    if (found == hints.end()) continue;
    if (found->second == "copies") return Registered::kCopies;
    try {
      return string_to_bool(found->second) ? Registered::kYes : Registered::kNo;
    } catch (const CommError& error) {
      throw CommError(Errc::kInvalidArgument,
                      "hint " + found->first + ": " + error.why() + ", or copies");
    }
  }
  return otherwise;
}

kernels::CopyMethod carrier_of(Registered wish) {
  return wish == Registered::kCopies ? kernels::CopyMethod::kCopyEngine
                                     : kernels::CopyMethod::kAutomatic;
}

SharedTensor shared_tensor(const kernels::KernelCall& call, int ranks) {
  const size_t bytes = call.count * size_of(call.dtype);
  if (!kernels::is_reduction(call.collective))
    return {call.output, bytes * kernels::parts_of(call.collective, ranks)};
  const bool has_parts = call.collective == kernels::Collective::kReduceScatter;
  return {call.input, has_parts ? bytes * static_cast<size_t>(ranks) : bytes};
}

}  // namespace torch::comms::ctran
