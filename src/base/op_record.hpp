#pragma once

#include <array>
#include <cstdint>

// What the rooms below core know of an operation: plain numbers, no tensors.
namespace torch::comms::base {

inline constexpr uint8_t kNone = 0xff;  // no dtype, no reduce operation
inline constexpr uint16_t kNoPeer = 0xffff;

struct OpRecord {
  uint8_t kind = 0;           // OpName
  uint8_t dtype = kNone;      // c10::ScalarType
  uint8_t reduce_op = kNone;  // RedOpType
  bool async_op = false;
  int32_t root_or_peer = -1;  // -1: neither
  uint32_t comm = 0;          // the communicator, as the event ring knows it
  // Of a batch, all of them; kNoPeer where there are fewer than two. Of one with more, or with
  // ranks from kNoPeer on, none.
  std::array<uint16_t, 2> peers = {kNoPeer, kNoPeer};
  uint64_t sequence = 0;  // of the operation in its communicator, from 1
  uint64_t op_id = 0;     // the public id, which a hook may reset
  uint64_t elements_in = 0;
  uint64_t elements_out = 0;
  uint64_t bytes = 0;              // of the larger side
  uint64_t matching_sequence = 0;  // what all that take part number it by, see OpOrder; 0: nothing
};

}  // namespace torch::comms::base
