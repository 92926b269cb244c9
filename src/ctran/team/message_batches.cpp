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
  BatchPositions positions;
  return messages.size() <= most || std::ranges::all_of(messages, [&](const auto& message) {
           return positions.next(message) < most;
         });
}

MessageBatches make_batches(int ranks, std::span<const kernels::KernelMessage> messages) {
  const size_t most = messages_per_batch(ranks);
  std::vector<size_t> batch(messages.size()), next;
  BatchPositions positions;
  for (size_t i = 0; i < messages.size(); ++i) {
    batch[i] = positions.next(messages[i]) / most;
    if (batch[i] + 1 > next.size()) next.resize(batch[i] + 1);
    ++next[batch[i]];
  }
  MessageBatches batches;
  batches.messages.resize(messages.size());
  size_t at = 0;
  for (size_t& of_batch : next) {
    const size_t begin = at;
    batches.ends.push_back(at += of_batch);
    of_batch = begin;
  }
  for (size_t i = 0; i < messages.size(); ++i) batches.messages[next[batch[i]]++] = messages[i];
  return batches;
}

}  // namespace torch::comms::ctran
