#pragma once

#include "vendor/vendor_library.hpp"

// Wraps a library whose calls block until the operation is done (VendorLibrary::is_blocking()) into
// one whose calls return at once. Operations run on streams of the CPU (gpu/cpu_runtime.hpp). It
// supports oneCCL on the CPU; operations that oneCCL lacks are built from its collectives.
namespace torch::comms::nccl {

// Returns `library` behind wrapper functions. What differs from NCCL:
// - After the first failed operation all later ones of its communicator do nothing.
//   CommGetAsyncError returns that operation's result, GetLastError the library's text.
// - Operations of a group run when the group ends, messages last. The messages are a collective:
//   all ranks of the communicator must have a group with messages, if need be with empty ones. A
//   message outside of a group is refused with kInvalidUsage, because only two ranks would call it.
// - Messages need memory: twice the largest message between any two ranks, for each rank.
// - AVG and PREMUL_SUM are computed from SUM, in the dtype of the elements.
// - There is no CommAbort, and an operation whose peer never calls never ends.
// Throws: CommError(kBackendUnavailable) if the library has no AllToAll.
VendorLibrary make_async_facade(const VendorLibrary& library);

}  // namespace torch::comms::nccl
