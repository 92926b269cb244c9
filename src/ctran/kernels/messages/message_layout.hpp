#pragma once

#include "ctran/kernels/protocol/layout.hpp"

// The area of a workspace for messages.
//
// A message between two ranks travels in one or several channels of that pair and direction, each
// through a ring in the receiver's workspace. The sender counts what it has put there. The receiver
// counts what it has taken out, and reports that to the sender, which is never further ahead than
// the ring is long. These counters only grow, each has one writer, and they do not depend on
// launches: one side may send in one launch what the other receives in several.
//
// A ring of chunks has some slots in the first part of a workspace, and some in the rest, which may
// be allocated late. The receiver reports, beside how many chunks it has taken, whether it knows
// the rest. If the sender knows the rest, too, its next message goes through all slots; it says so
// beside its own count. If the message before used fewer slots, the sender first waits until the
// ring is empty.
//
// Small messages use LL128: each warp of a channel has a ring of its own, and a tile's flag is the
// number of tiles so far. Large messages use chunks, and a counter follows their data. A message's
// size goes ahead of it, in a ring of headers. The receiver reports the last tile of a message, and
// its header, only when it is at the next message. The rings have room for that.
//
// Zero-copy data are counted as if they had gone through the rings, once all of a channel has been
// written. The header asks for the address, and each channel waits for the reply.
namespace torch::comms::ctran::kernels {

inline constexpr int kLineChannels = 32, kChunkChannels = 16;
inline constexpr int kMostChannels = kLineChannels;  // of either
static_assert(kMostChannels >= kChunkChannels);
inline constexpr int kChannelWarps = 16;  // copy warps of a block
inline constexpr int kTileRing = 4;       // tiles of a warp
// Headers of a pair and direction that may be in flight. When a block is at the first message of a
// launch, another block of its rank may have taken the last one. There are as many more slots for
// that. Replies are read within the sender's launch, and only to messages that it has sent.
inline constexpr int kHeaderRing = 128, kHeaderSlots = 256;
static_assert(kMaxMessages <= kHeaderRing && kHeaderSlots >= kHeaderRing + kMaxMessages);
inline constexpr size_t kTileSlot = size_t{kLL128Vectors} * 512;
inline constexpr uint32_t kChunk = uint32_t{32} << 10;
// Chunks of a channel's ring, and how many of them are in the first part of a workspace, which also
// form a ring: powers of two. With four ranks the first part is 14 MB, and not 20. Until the rest
// exists, a message of 64 MB takes 280 us instead of 208. With five chunks it takes 254 us; more
// chunks that are shorter do not help (four H200).
constexpr int chunk_ring(int ranks) { return ranks == 2 ? 16 : ranks <= 4 ? 8 : 4; }
constexpr int first_chunks(int ranks) { return ranks == 4 ? 4 : chunk_ring(ranks); }
constexpr bool has_late_chunks(int ranks) { return first_chunks(ranks) < chunk_ring(ranks); }

// Whether a sender that has put `sent` entries into a ring may put one more.
constexpr bool has_space(uint64_t sent, uint64_t taken, uint64_t ring) {
  return sent - taken < ring;
}

// A channel's counter of chunks, as both sides report it and a sender keeps it: a number and a
// ring. A sender's ring is the one of its last chunk that went through a ring; a receiver's is the
// longest ring that it knows. Ring 0: the slots of the first part alone.
inline constexpr uint64_t kWholeRing = uint64_t{1} << 63;
constexpr uint64_t number_of(uint64_t counter) { return counter & ~kWholeRing; }
constexpr uint64_t ring_in(uint64_t counter) { return counter & kWholeRing; }
// Returns the number up to which a sender may put chunks of a message; less than `before`: none.
// `before`: all chunks of earlier messages. `taken`: chunks that the peer has taken. `changes`: the
// message uses another ring than the chunks before it.
constexpr uint64_t end_of_space(uint64_t before, uint64_t taken, uint64_t slots, bool changes) {
  return changes && !has_reached(taken, before) ? taken : taken + slots;
}

// Progress of the messages of a pair and direction. Every channel has counters of both kinds. A
// block loads and stores both kinds, whichever it uses.
struct MessageCounters {
  uint64_t messages;
  uint64_t chunks[kMostChannels];
  uint64_t tiles[kMostChannels][kChannelWarps];
};

// What one side reports to the other about a message, in two words of 8 bytes. Each word is whole
// by itself: half of the value beside the number of the message, from 1. In a header the value is
// the size, and whether zero-copy is requested. In a reply it is the address, or 0.
struct alignas(16) MailboxEntry {
  uint32_t low, number, high, number_again;
};
constexpr uint32_t header_number(uint64_t messages_before) {
  return static_cast<uint32_t>(messages_before + 1);
}
inline constexpr uint64_t kZeroCopyRequest = uint64_t{1} << 63;
constexpr uint64_t header_value(size_t bytes, bool requests_zero_copy) {
  return bytes | (requests_zero_copy ? kZeroCopyRequest : 0);
}

// What a rank keeps for a peer.
struct alignas(128) Mailbox {
  struct alignas(128) MailboxCounter {
    uint64_t value;
  };
  // The peer writes these: headers of its messages, replies to this rank's messages, how many
  // chunks it has sent, and what it has taken of this rank's messages.
  MailboxEntry headers[kHeaderSlots];
  MailboxEntry replies[kHeaderRing];
  MailboxCounter chunks[kChunkChannels];
  alignas(128) MessageCounters taken_by_peer;
  // This rank's own counters, across launches.
  alignas(128) MessageCounters sent, taken;
};

// The rings of a team's chunks in a workspace. The first slots of all rings are adjacent, and so
// are the additional slots that some rings have.
struct ChunkRings {
  size_t first, more;                // where the first slots and the additional ones begin
  uint32_t first_bytes, more_bytes;  // of each ring
  uint64_t known_ring;               // the longest ring that this rank knows

  constexpr uint32_t slots(uint64_t ring) const {
    return (ring == 0 ? first_bytes : first_bytes + more_bytes) / kChunk;
  }
};

// Returns the bytes of all tiles that a rank keeps for a peer; chunks_bytes() of all chunks of
// either part.
constexpr size_t tiles_bytes() {
  return size_t{kLineChannels} * kChannelWarps * kTileRing * kTileSlot;
}
constexpr size_t chunks_bytes(int slots) {
  return size_t{kChunkChannels} * static_cast<size_t>(slots) * kChunk;
}

// Return where `owner` keeps what is for or from `peer`. Offsets of mailboxes and tiles count from
// where these begin, offsets of chunks from the beginning of the workspace. `number`: of the tile
// or chunk, from the first that there ever was. `slots`: of the ring.
constexpr size_t mailbox_offset(int owner, int peer) {
  return static_cast<size_t>(peer_index(owner, peer)) * sizeof(Mailbox);
}
constexpr size_t tile_offset(int owner, int peer, int channel, int warp, uint64_t number) {
  const int ring = (peer_index(owner, peer) * kLineChannels + channel) * kChannelWarps + warp;
  return (static_cast<size_t>(ring) * kTileRing + number % kTileRing) * kTileSlot;
}
constexpr size_t chunk_offset(const ChunkRings& rings, uint32_t slots, int owner, int peer,
                              int channel, uint64_t number) {
  const auto ring =
      static_cast<size_t>(peer_index(owner, peer)) * kChunkChannels + static_cast<size_t>(channel);
  const uint32_t at = static_cast<uint32_t>(number & (slots - 1)) * kChunk;
  return at < rings.first_bytes ? rings.first + ring * rings.first_bytes + at
                                : rings.more + ring * rings.more_bytes + at - rings.first_bytes;
}

}  // namespace torch::comms::ctran::kernels
