#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torchcomms/types.hpp>

namespace torch::comms {

// What a backend can do, known before the first call. The communicator asks here and raises
// CommError(kUnsupported) naming the backend; no backend method answers "not implemented" for what
// it states.
struct TC_API Capabilities {
  std::bitset<kOpNameCount> operations;  // by OpName
  std::bitset<static_cast<size_t>(c10::ScalarType::NumOptions)>
      dtypes;                                               // by ScalarType, of any operation
  std::bitset<9> reduce_ops;                                // by RedOpType
  std::bitset<c10::COMPILE_TIME_MAX_DEVICE_TYPES> devices;  // of tensors, by DeviceType

  bool strict_arguments = true;  // false (fake): sizes and layouts are not checked, for dry runs
  bool self_messages = false;    // send/recv/batch with the own rank as peer
  bool any_source = false;       // RecvOptions::any_source
  bool counts_splits =
      true;  // records count next_split() with the collectives, which all ranks call
  bool final_finalize =
      true;  // false: operations keep working after finalize(), which may be repeated
  bool reconfigure = false;
  bool place_before_members = true;  // get_rank() and get_size() are -1 then; false: they raise
  bool abort = false;
  bool windows = false;
  bool graph_capture = false;
  // Tensors on cuda, too, though the backend sees CPU tensors alone: the communicator copies them
  // through host memory.
  bool staging = false;
  // An asynchronous operation that failed, and that nobody waits for, may end the process, as
  // CommOptions::abort_process_on_timeout_or_error says. Of a backend that fails as a whole.
  bool ends_process = false;

  // Everything on, for a backend that moves nothing or cannot say. `devices` too.
  static Capabilities all();

  bool has(OpName op) const { return operations.test(static_cast<size_t>(op)); }
  bool has(c10::ScalarType dtype) const { return dtypes.test(static_cast<size_t>(dtype)); }
  bool has(RedOpType op) const { return reduce_ops.test(static_cast<size_t>(op)); }
  bool has(c10::DeviceType device) const { return devices.test(static_cast<size_t>(device)); }
};

}  // namespace torch::comms
