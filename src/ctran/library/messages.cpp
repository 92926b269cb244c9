#include "ctran/library/messages.hpp"

namespace torch::comms::ctran {

SortedMessages sort_messages(int rank, std::span<const kernels::KernelMessage> messages) {
  SortedMessages sorted;
  std::vector<const kernels::KernelMessage*> sends, receives;
  for (const auto& message : messages) {
    if (message.peer != rank)
      sorted.to_others.push_back(message);
    else
      (message.is_receive != 0 ? receives : sends).push_back(&message);
  }
  if (sends.size() != receives.size()) {
    sorted.refused = "messages of rank " + std::to_string(rank) +
                     " to itself: " + std::to_string(sends.size()) + " sends and " +
                     std::to_string(receives.size()) +
                     " receives are in one call; each needs its other side in the same call, as "
                     "in a batch";
    return sorted;
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    if (sends[i]->bytes != receives[i]->bytes) {
      sorted.refused = "a message of rank " + std::to_string(rank) + " to itself has " +
                       std::to_string(sends[i]->bytes) + " bytes, its receive " +
                       std::to_string(receives[i]->bytes);
      return sorted;
    }
    sorted.to_itself.push_back({sends[i]->data, receives[i]->data, sends[i]->bytes});
  }
  return sorted;
}

}  // namespace torch::comms::ctran
