#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ctran/kernels/host/library.hpp"

// A list of messages that is too long for one launch, cut into several.
namespace torch::comms::ctran {

// Of each rank and direction, so many messages are in a round: the first of them in round 0, the
// next ones in round 1. A message's round goes by its place among those of its rank and direction
// alone, so both sides of it find the same, whatever messages either has with other ranks; and no
// round has more than kernels::kMaxMessages.
//
// Nothing waits for ever: of all rounds that are not over on some rank, take the least, r. Each
// rank that has messages in it has begun it, for its earlier rounds are over; both sides of each of
// its messages are in round r of their ranks, so are under way, and all messages of a launch go on
// at once. A rank without messages in a round has none to wait for, and goes on to its next one.
constexpr size_t messages_per_batch(int ranks) {
  return static_cast<size_t>(kernels::kMaxMessages) / (2 * static_cast<size_t>(ranks - 1));
}

// Messages by round, in the order of the list within each. Rounds of this rank without messages are
// left out.
struct MessageBatches {
  std::vector<kernels::KernelMessage> messages;
  std::vector<size_t> ends;  // of each round, in messages
};
// `messages` are with ranks from 0 to ranks - 1.
MessageBatches make_batches(int ranks, std::span<const kernels::KernelMessage> messages);

// Whether all of them are in one round.
bool fits_one_batch(int ranks, std::span<const kernels::KernelMessage> messages) noexcept;

}  // namespace torch::comms::ctran
