#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ctran/kernels/host/library.hpp"

// Divides a list of messages that is too long for one launch into batches.
namespace torch::comms::ctran {

// Returns how many messages of each peer and direction are in a batch: the first ones in batch 0,
// the next ones in batch 1. The batch of a message depends only on its position among those of its
// peer and direction. Both sides thus find the same batch, whatever messages they have with other
// ranks. No batch has more than kernels::kMaxMessages.
//
// There is no deadlock. Of all batches that are not complete on some rank, take the lowest one, r.
// Each rank that has messages in it has begun it, because its earlier batches are complete. Both
// sides of each of these messages are in batch r of their ranks and are thus in flight, and all
// messages of a launch progress at once. A rank without messages in a batch waits for none there,
// and continues with its next batch.
constexpr size_t messages_per_batch(int ranks) {
  return static_cast<size_t>(kernels::kMaxMessages) / (2 * static_cast<size_t>(ranks - 1));
}

// Messages by batch, and within a batch in the order of the list. Batches without messages of this
// rank are left out.
struct MessageBatches {
  std::vector<kernels::KernelMessage> messages;
  std::vector<size_t> ends;  // of each batch, as an index into `messages`
};
// The peers of `messages` must be from 0 to ranks - 1.
MessageBatches make_batches(int ranks, std::span<const kernels::KernelMessage> messages);

// Whether all messages are in one batch.
bool fits_one_batch(int ranks, std::span<const kernels::KernelMessage> messages) noexcept;

}  // namespace torch::comms::ctran
