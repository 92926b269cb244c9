#include "ctran/team/message_batches.hpp"

#include <algorithm>

namespace torch::comms::ctran {
namespace {

// Numbers the messages of each peer and direction in the order of the list.
class BatchPositions {
 public:
  size_t next(const kernels::KernelMessage& message) {
    return seen_[static_cast<size_t>(message.peer)][message.is_receive != 0 ? 1 : 0]++;
  }

 private:
  size_t seen_[kernels::kMaxRanks][2] = {};
};

}  // namespace

bool fits_one_batch(int ranks, std::span<const kernels::KernelMessage> messages) noexcept {
  const size_t most = messages_per_batch(ranks);
  BatchPositions places;
  return messages.size() <= most || std::ranges::all_of(messages, [&](const auto& message) {
           return places.next(message) < most;
         });
}

MessageBatches make_batches(int ranks, std::span<const kernels::KernelMessage> messages) {
  const size_t most = messages_per_batch(ranks);
  std::vector<size_t> round(messages.size()), next;
  BatchPositions places;
  for (size_t i = 0; i < messages.size(); ++i) {
    round[i] = places.next(messages[i]) / most;
    if (round[i] + 1 > next.size()) next.resize(round[i] + 1);
    ++next[round[i]];
  }
  MessageBatches rounds;
  rounds.messages.resize(messages.size());
  size_t at = 0;
  for (size_t& of_round : next) {
    const size_t begin = at;
    rounds.ends.push_back(at += of_round);
    of_round = begin;
  }
  for (size_t i = 0; i < messages.size(); ++i) rounds.messages[next[round[i]]++] = messages[i];
  return rounds;
}

}  // namespace torch::comms::ctran
