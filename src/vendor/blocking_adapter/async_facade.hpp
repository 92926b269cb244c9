#pragma once

#include "vendor/vendor_library.hpp"

// A library whose calls return when the operation is done (Table::is_blocking()), made into one
// whose calls return at once: its operations run on streams of the CPU (gpu/cpu_runtime.hpp). Of
// oneCCL, as far as its part for the CPU goes; what that lacks and collectives can do is done by
// those.
namespace torch::comms::nccl {

// `library` behind functions of ours. Throws CommError(kBackendUnavailable) for one without
// AllToAll. What differs from NCCL:
// - The first operation that fails ends all later ones of its communicator; CommGetAsyncError gives
//   its result, GetLastError the library's text.
// - Operations of a group run when it ends, messages last. Those are a collective of their own: all
//   ranks of the communicator have a group with messages, if they have none but of no bytes.
//   Outside of a group a message is refused (kInvalidUsage), as what only two ranks call.
// - Messages take room: twice the largest one of any two ranks, for each rank.
// - AVG and PREMUL_SUM are by way of the sum, in the elements' dtype.
// - There is no CommAbort, and an operation whose peer never comes never ends.
VendorLibrary make_async_facade(const VendorLibrary& library);

}  // namespace torch::comms::nccl
