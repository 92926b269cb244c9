#include "backends/kernels/regions.hpp"

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "ctran/kernels/rows.hpp"

namespace torch::comms::ctran {

Registered registered_wish(const Hints& hints, Registered otherwise) {
  for (const char* const name : {kRegistered, "ncclx::registered"}) {
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

kernels::Carrier carrier_of(Registered wish) {
  return wish == Registered::kCopies ? kernels::Carrier::kCopies : kernels::Carrier::kAutomatic;
}

size_t output_bytes(const kernels::Call& call, int ranks) {
  return call.count * size_of(call.dtype) * kernels::parts_of(call.collective, ranks);
}

}  // namespace torch::comms::ctran
