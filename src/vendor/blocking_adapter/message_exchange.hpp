#pragma once

#include <span>

#include "vendor/blocking_adapter/blocking_communicator.hpp"

namespace torch::comms::nccl::host {

struct PointToPointMessage {
  int peer;
  bool is_send;
  void* data;  // only read where it sends
  size_t size_bytes;
};

// All messages of all ranks, which all call this: an AllGather of their sizes, and an AllToAll of
// parts that are as large as the largest. Messages between two ranks are in the order of their
// calls. kInvalidUsage, with the ranks and sizes in the member's text: what one sends is not what
// the other receives; the others have theirs.
abi::Result exchange_messages(BlockingCommunicator& member,
                              std::span<const PointToPointMessage> messages);

}  // namespace torch::comms::nccl::host
