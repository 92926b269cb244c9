#pragma once

#include <span>

#include "nccl/host/member.hpp"

namespace torch::comms::nccl::host {

struct Message {
  int peer;
  bool sends;
  void* data;  // only read where it sends
  size_t size_bytes;
};

// All messages of all ranks, which all call this: an AllGather of their sizes, and an AllToAll of
// parts that are as large as the largest. Messages between two ranks are in the order of their
// calls. kInvalidUsage, with the ranks and sizes in the member's text: what one sends is not what
// the other receives; the others have theirs.
abi::Result exchange(Member& member, std::span<const Message> messages);

}  // namespace torch::comms::nccl::host
