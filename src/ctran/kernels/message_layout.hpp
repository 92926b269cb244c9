#pragma once

#include "ctran/kernels/layout.hpp"

// What a workspace holds for messages.
//
// A message between two ranks travels in one or several channels of that pair and direction, each
// through a ring in the receiver's workspace: the sender counts what it has put there, the receiver
// what it has taken out, and tells the sender, which is never further ahead than the ring is long.
// These counters only grow, each has one writer, and they know nothing of launches: one side may
// send in one launch what the other receives in several.
//
// Small messages go by lines, each warp of a channel with a ring of its own, where a tile's flag is
// how many tiles there have been; large ones by chunks, and a counter follows their data. A
// message's size goes ahead of it, in a ring of heads. That the last tile of a message is taken,
// and its head, the receiver tells when it is at the next one: the rings have room for more than
// that.
//
// What a sender writes straight to where it is wanted is counted as if it had gone through the
// rings, once all of a channel is there. Its head asks for the place, and each channel waits for
// the answer.
namespace torch::comms::ctran::kernels {

inline constexpr int kLineChannels = 32, kChunkChannels = 16;
inline constexpr int kMostChannels = kLineChannels;  // of either
static_assert(kMostChannels >= kChunkChannels);
inline constexpr int kChannelWarps = 16;  // that move data
inline constexpr int kTileRing = 4;       // tiles of a warp
// Heads of a pair and direction that may be on their way. A block may be at the first message of a
// launch when another one of its rank has taken the last: the slots are as many more. Answers are
// looked at within the sender's launch, and given to what that has sent.
inline constexpr int kHeadRing = 128, kHeadSlots = 256;
static_assert(kMaxMessages <= kHeadRing && kHeadSlots >= kHeadRing + kMaxMessages);
inline constexpr size_t kTileSlot = size_t{kLineVectors} * 512;
inline constexpr size_t kChunk = size_t{32} << 10;
// Chunks of a channel. A power of two.
constexpr int chunk_ring(int ranks) { return ranks == 2 ? 16 : ranks <= 4 ? 8 : 4; }

// Whether a sender that has put `sent` of them into a ring may put one more.
constexpr bool has_room(uint64_t sent, uint64_t taken, uint64_t ring) {
  return sent - taken < ring;
}

// How far the messages of a pair and direction have come. Every channel has counters of both kinds,
// which a block brings and keeps together, whichever it uses.
struct Progress {
  uint64_t messages;
  uint64_t chunks[kMostChannels];
  uint64_t tiles[kMostChannels][kChannelWarps];
};

// What one side tells the other of a message, in two words of 8 bytes that are whole each: half of
// the value beside the number of the message, from 1. Of a head the value is the size, and whether
// it asks; of an answer the place, or 0.
struct alignas(16) Head {
  uint32_t low, number, high, number_again;
};
constexpr uint32_t head_number(uint64_t messages_before) {
  return static_cast<uint32_t>(messages_before + 1);
}
inline constexpr uint64_t kAsks = uint64_t{1} << 63;
constexpr uint64_t head_value(size_t bytes, bool asks) { return bytes | (asks ? kAsks : 0); }

// What a rank keeps for a peer.
struct alignas(128) Mailbox {
  struct alignas(128) Counter {
    uint64_t value;
  };
  // Written by the peer: what it sends, where it wants what this rank sends, how many chunks of the
  // former are there, and how much of the latter it has taken.
  Head heads[kHeadSlots];
  Head answers[kHeadRing];
  Counter chunks[kChunkChannels];
  alignas(128) Progress taken_by_peer;
  // This rank's own, from launch to launch.
  alignas(128) Progress sent, taken;
};

// Of all tiles, and of all chunks, that a rank keeps for a peer.
constexpr size_t tiles_bytes() {
  return size_t{kLineChannels} * kChannelWarps * kTileRing * kTileSlot;
}
constexpr size_t chunks_bytes(int ranks) {
  return size_t{kChunkChannels} * static_cast<size_t>(chunk_ring(ranks)) * kChunk;
}

// From where mailboxes, tiles and chunks begin, where `owner` keeps what is for `peer`, or from it.
// `number`: of the tile or chunk, from the first that there ever was.
constexpr size_t mailbox_offset(int owner, int peer) {
  return static_cast<size_t>(place_of(owner, peer)) * sizeof(Mailbox);
}
constexpr size_t tile_offset(int owner, int peer, int channel, int warp, uint64_t number) {
  const int ring = (place_of(owner, peer) * kLineChannels + channel) * kChannelWarps + warp;
  return (static_cast<size_t>(ring) * kTileRing + number % kTileRing) * kTileSlot;
}
constexpr size_t chunk_offset(int ranks, int owner, int peer, int channel, uint64_t number) {
  const auto slots = static_cast<size_t>(chunk_ring(ranks));
  const int ring = place_of(owner, peer) * kChunkChannels + channel;
  return (static_cast<size_t>(ring) * slots + (number & (slots - 1))) * kChunk;
}

}  // namespace torch::comms::ctran::kernels
