#pragma once

#include <span>

#include "vendor/blocking_adapter/blocking_communicator.hpp"

namespace torch::comms::nccl::host {

// A send or a receive of one group.
struct PointToPointMessage {
  int peer;
  bool is_send;
  void* data;  // only read if `is_send`
  size_t size_bytes;
};

// Carries out the messages of all ranks; collective. It runs an AllGather of the sizes and an
// AllToAll with parts as large as the largest. Messages between two ranks match in the order of
// their calls. Returns: kInvalidUsage, with ranks and sizes in the communicator's error text, if a
// sender and this rank disagree about the bytes. Other ranks still get their messages.
abi::Result exchange_messages(BlockingCommunicator& member,
                              std::span<const PointToPointMessage> messages);

}  // namespace torch::comms::nccl::host
