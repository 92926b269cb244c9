#pragma once

#include <array>
#include <cstdint>

// What the layers below core know of an operation: plain numbers, no tensors.
namespace torch::comms::base {

inline constexpr uint8_t kNone = 0xff;  // no dtype or no reduce operation
inline constexpr uint16_t kNoPeer = 0xffff;

// One operation of a communicator, as the recorder and the monitor see it.
struct OpRecord {
  uint8_t kind = 0;           // OpName
  uint8_t dtype = kNone;      // c10::ScalarType
  uint8_t reduce_op = kNone;  // RedOpType
  bool async_op = false;
  int32_t root_or_peer = -1;  // -1: neither
  uint32_t comm = 0;          // the communicator's index in the event ring
  // The peers of a batch; kNoPeer fills the unused places. Both are kNoPeer if the batch has more
  // than two peers, or peers of rank kNoPeer and above.
  std::array<uint16_t, 2> peers = {kNoPeer, kNoPeer};
  uint64_t sequence = 0;  // of the operation in its communicator, from 1
  uint64_t op_id = 0;     // the public id; a hook may reset it
  uint64_t elements_in = 0;
  uint64_t elements_out = 0;
  uint64_t bytes = 0;              // of the larger of input and output
  uint64_t matching_sequence = 0;  // equal on all participants, see OpOrder; 0: none
};

}  // namespace torch::comms::base
