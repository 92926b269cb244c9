#include "ctran/library/messages.hpp"

namespace torch::comms::ctran {

SortedMessages sort_messages(int rank, std::span<const kernels::KernelMessage> messages) {
  SortedMessages sorted;
  std::vector<const kernels::KernelMessage*> sends, receives;
  for (const auto& message : messages) {
    if (message.peer != rank)
      sorted.peer_messages.push_back(message);
    else
      (message.is_receive != 0 ? receives : sends).push_back(&message);
  }
  if (sends.size() != receives.size()) {
    sorted.invalid_reason =
        "rank " + std::to_string(rank) + " has " + std::to_string(sends.size()) +
        " sends to itself and " + std::to_string(receives.size()) +
        " receives from itself in one call; each send needs its receive in the same "
        "call: put both into one batch";
    return sorted;
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    if (sends[i]->bytes != receives[i]->bytes) {
      sorted.invalid_reason = "a message of rank " + std::to_string(rank) + " to itself has " +
                              std::to_string(sends[i]->bytes) + " bytes, its receive " +
                              std::to_string(receives[i]->bytes);
      return sorted;
    }
    sorted.self_messages.push_back({sends[i]->data, receives[i]->data, sends[i]->bytes});
  }
  return sorted;
}

}  // namespace torch::comms::ctran
