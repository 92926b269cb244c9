#pragma once

#include <span>
#include <string>
#include <vector>

#include "ctran/kernels/host/library.hpp"

// The messages of a group: those with other ranks, and those of a rank to itself.
namespace torch::comms::ctran {

// From and into memory of one rank.
struct SelfMessage {
  const void* from;
  void* into;
  size_t bytes;
};

struct SortedMessages {
  std::vector<kernels::KernelMessage> to_others;  // in their order
  std::vector<SelfMessage> to_itself;             // sends and receives in their order, by turns
  std::string refused;                            // why the group cannot be; "" where it can
};
SortedMessages sort_messages(int rank, std::span<const kernels::KernelMessage> messages);

}  // namespace torch::comms::ctran
