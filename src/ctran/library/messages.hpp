#pragma once

#include <span>
#include <string>
#include <vector>

#include "ctran/kernels/host/library.hpp"

// Sorts the messages of a group: messages with other ranks, and messages of a rank to itself.
namespace torch::comms::ctran {

// A message of a rank to itself: a copy in its memory.
struct SelfMessage {
  const void* from;
  void* into;
  size_t bytes;
};

struct SortedMessages {
  std::vector<kernels::KernelMessage> peer_messages;  // in the order of the group
  std::vector<SelfMessage> self_messages;             // the nth send with the nth receive
  std::string invalid_reason;                         // why the group is invalid; "" if it is valid
};
SortedMessages sort_messages(int rank, std::span<const kernels::KernelMessage> messages);

}  // namespace torch::comms::ctran
