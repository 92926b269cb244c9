#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torchcomms/types.hpp>

namespace torch::comms {

// Describes what a backend can do; it is known before the first call. The communicator checks each
// call against it and throws CommError(kUnsupported) that names the backend. A backend implements
// everything that its capabilities include.
struct TC_API Capabilities {
  std::bitset<kOpNameCount> operations;  // by OpName
  std::bitset<static_cast<size_t>(c10::ScalarType::NumOptions)>
      dtypes;                                               // by ScalarType, for all operations
  std::bitset<9> reduce_ops;                                // by RedOpType
  std::bitset<c10::COMPILE_TIME_MAX_DEVICE_TYPES> devices;  // of tensors, by DeviceType

  bool strict_arguments = true;  // false (fake): sizes and layouts are not checked, for dry runs
  bool self_messages = false;    // send, recv and batches accept the own rank as peer
  bool any_source = false;       // RecvOptions::any_source
  bool counts_splits = true;     // split() counts as a collective, because all ranks call it
  bool final_finalize = true;    // false: operations and finalize() still work after finalize()
  bool reconfigure = false;
  bool place_before_members = true;  // without members, rank and size are -1; false: they throw
  bool abort = false;
  bool windows = false;
  bool graph_capture = false;
  // The communicator also accepts CUDA tensors, although the backend only handles CPU tensors. It
  // copies them through host memory.
  bool staging = false;
  // A failed asynchronous operation that the program does not observe may terminate the process:
  // see CommOptions::abort_process_on_timeout_or_error. It is set for backends that fail as a
  // whole.
  bool ends_process = false;

  // Returns: capabilities with all operations, dtypes, reductions and devices, for a backend that
  // moves no data or whose abilities are not known.
  static Capabilities all();

  bool has(OpName op) const { return operations.test(static_cast<size_t>(op)); }
  bool has(c10::ScalarType dtype) const { return dtypes.test(static_cast<size_t>(dtype)); }
  bool has(RedOpType op) const { return reduce_ops.test(static_cast<size_t>(op)); }
  bool has(c10::DeviceType device) const { return devices.test(static_cast<size_t>(device)); }
};

}  // namespace torch::comms
