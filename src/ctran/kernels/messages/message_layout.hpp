#pragma once

#include "ctran/kernels/protocol/layout.hpp"

// What a workspace holds for messages.
//
// A message between two ranks travels in one or several channels of that pair and direction, each
// through a ring in the receiver's workspace: the sender counts what it has put there, the receiver
// what it has taken out, and tells the sender, which is never further ahead than the ring is long.
// These counters only grow, each has one writer, and they know nothing of launches: one side may
// send in one launch what the other receives in several.
//
// A ring of chunks has some slots in the first part of a workspace, and some in the rest, which may
// come late. The receiver says, beside how many chunks it has taken, whether it knows the rest;
// where the sender does, too, its next message goes through all of them, which it says beside how
// many there are. Where it was otherwise before, it waits until the ring is empty.
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
inline constexpr int kHeaderRing = 128, kHeaderSlots = 256;
static_assert(kMaxMessages <= kHeaderRing && kHeaderSlots >= kHeaderRing + kMaxMessages);
inline constexpr size_t kTileSlot = size_t{kLL128Vectors} * 512;
inline constexpr uint32_t kChunk = uint32_t{32} << 10;
// Chunks of a channel, and how many of them are in the first part of a workspace, which alone make
// a ring, too: powers of two. Of four ranks the part is 14 MB so, and not 20, and until the rest is
// there a message of 64 MB takes 280 us instead of 208; with five of them 254, and more that are
// shorter do not help (four H200).
constexpr int chunk_ring(int ranks) { return ranks == 2 ? 16 : ranks <= 4 ? 8 : 4; }
constexpr int first_chunks(int ranks) { return ranks == 4 ? 4 : chunk_ring(ranks); }
constexpr bool has_late_chunks(int ranks) { return first_chunks(ranks) < chunk_ring(ranks); }

// Whether a sender that has put `sent` of them into a ring may put one more.
constexpr bool has_space(uint64_t sent, uint64_t taken, uint64_t ring) {
  return sent - taken < ring;
}

// A channel's counter of chunks as both sides tell it, and a sender keeps it: the number, and a
// ring. Of a sender it is that of the last of them that went through one; of a receiver the longest
// one that it knows. 0: the slots of the first part alone.
inline constexpr uint64_t kWholeRing = uint64_t{1} << 63;
constexpr uint64_t number_of(uint64_t counter) { return counter & ~kWholeRing; }
constexpr uint64_t ring_in(uint64_t counter) { return counter & kWholeRing; }
// Up to which number a sender may put chunks of a message before which there were `before`, where
// the peer has taken so many; less than `before`: none. `changes`: the ring is another one than it
// was for those before.
constexpr uint64_t end_of_space(uint64_t before, uint64_t taken, uint64_t slots, bool changes) {
  return changes && !has_reached(taken, before) ? taken : taken + slots;
}

// How far the messages of a pair and direction have come. Every channel has counters of both kinds,
// which a block brings and keeps together, whichever it uses.
struct MessageCounters {
  uint64_t messages;
  uint64_t chunks[kMostChannels];
  uint64_t tiles[kMostChannels][kChannelWarps];
};

// What one side tells the other of a message, in two words of 8 bytes that are whole each: half of
// the value beside the number of the message, from 1. Of a head the value is the size, and whether
// it asks; of an answer the place, or 0.
struct alignas(16) MailboxEntry {
  uint32_t low, number, high, number_again;
};
constexpr uint32_t header_number(uint64_t messages_before) {
  return static_cast<uint32_t>(messages_before + 1);
}
inline constexpr uint64_t kZeroCopyRequest = uint64_t{1} << 63;
constexpr uint64_t header_value(size_t bytes, bool asks) {
  return bytes | (asks ? kZeroCopyRequest : 0);
}

// What a rank keeps for a peer.
struct alignas(128) Mailbox {
  struct alignas(128) MailboxCounter {
    uint64_t value;
  };
  // Written by the peer: what it sends, where it wants what this rank sends, how many chunks of the
  // former are there, and how much of the latter it has taken.
  MailboxEntry headers[kHeaderSlots];
  MailboxEntry replies[kHeaderRing];
  MailboxCounter chunks[kChunkChannels];
  alignas(128) MessageCounters taken_by_peer;
  // This rank's own, from launch to launch.
  alignas(128) MessageCounters sent, taken;
};

// The rings of a team's chunks in a workspace: the first slots of all lie together, and so do those
// that some have beyond.
struct ChunkRings {
  size_t first, more;                // where these begin
  uint32_t first_bytes, more_bytes;  // of each ring
  uint64_t known_ring;               // to this rank, the longest one

  constexpr uint32_t slots(uint64_t ring) const {
    return (ring == 0 ? first_bytes : first_bytes + more_bytes) / kChunk;
  }
};

// Of all tiles, and of all chunks of either part, that a rank keeps for a peer.
constexpr size_t tiles_bytes() {
  return size_t{kLineChannels} * kChannelWarps * kTileRing * kTileSlot;
}
constexpr size_t chunks_bytes(int slots) {
  return size_t{kChunkChannels} * static_cast<size_t>(slots) * kChunk;
}

// From where mailboxes and tiles begin, of chunks from where the workspace does, where `owner`
// keeps what is for `peer`, or from it.
// `number`: of the tile or chunk, from the first that there ever was. `slots`: of the ring.
constexpr size_t mailbox_offset(int owner, int peer) {
  return static_cast<size_t>(peer_index(owner, peer)) * sizeof(Mailbox);
}
constexpr size_t tile_offset(int owner, int peer, int channel, int warp, uint64_t number) {
  const int ring = (peer_index(owner, peer) * kLineChannels + channel) * kChannelWarps + warp;
  return (static_cast<size_t>(ring) * kTileRing + number % kTileRing) * kTileSlot;
}
constexpr size_t chunk_offset(const ChunkRings& rings, uint32_t slots, int owner, int peer,
                              int channel, uint64_t number) {
  const auto ring = static_cast<size_t>(peer_index(owner, peer) * kChunkChannels + channel);
  const uint32_t at = static_cast<uint32_t>(number & (slots - 1)) * kChunk;
  return at < rings.first_bytes ? rings.first + ring * rings.first_bytes + at
                                : rings.more + ring * rings.more_bytes + at - rings.first_bytes;
}

}  // namespace torch::comms::ctran::kernels
