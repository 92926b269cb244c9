#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/protocol/flags.hpp"

// Layout of the collectives' part of a workspace (workspace_layout.hpp): pure functions of the
// number of ranks.
//
// Data reach a peer through slots of the peer's workspace: every worker of a launch has a ring of
// slots for each peer. An area of a workspace never holds data of two formats, so data of an
// earlier launch cannot look like a flag of a later one.
//
// A slot may be written again:
// - Between launches: before launch k, a rank waits until all ranks have begun k - 1 and thus
//   finished k - 2. Launches k and k - 2 share a generation of slots; k and k - 1 do not.
// - Within a launch: worker w of a rank receives only from workers w of its peers, and sends step
//   s + 1 before it receives step s. If each rank receives from every peer that it sends to, step
//   s - 1 of a peer proves that the peer has received step s - 3. Four slots are then enough.
//   Otherwise receivers acknowledge their steps.
namespace torch::comms::ctran::kernels {

// How a receiver tells new data from old. LL: 4 bytes of flag beside each 4 bytes of data. LL128: 8
// bytes of flag beside each 120 bytes of data. Wide LL128: the lanes with the flag hold no data,
// for elements of 16 bytes that must stay together.
// Long LL128: more vectors in a tile, which moves more at once and begins later. Only teams of two
// ranks use it.
enum class PacketProtocol : uint8_t { kLL, kLL128, kLongLL128, kWideLL128 };

inline constexpr int kWarp = 32;
inline constexpr int kMostThreads = 512;
inline constexpr int kMostBlocks = 128;
inline constexpr int kRing = 4;  // slots of a worker for a peer in one generation

// The data bytes of a tile and the bytes of its slot.
inline constexpr size_t kLLTile = 512, kLLSlot = 1024;
inline constexpr int kLL128Vectors = 2, kLongLL128Vectors = 4;
inline constexpr size_t kLL128Slot = size_t{kLL128Vectors} * 512;
inline constexpr size_t kLongLL128Slot = size_t{kLongLL128Vectors} * 512;
inline constexpr size_t kLL128Tile = size_t{kLL128Vectors} * 480;
inline constexpr size_t kLongLL128Tile = size_t{kLongLL128Vectors} * 480;
inline constexpr size_t kWideLL128Tile = size_t{kLL128Vectors} * 448;

// The most workers of a launch. A worker is a warp.
inline constexpr int kLLWorkers = 256;
constexpr int ll128_workers(int ranks) { return ranks == 2 ? 2048 : ranks <= 4 ? 1024 : 512; }
constexpr bool has_long_ll128(int ranks) { return ranks == 2; }

// Packs a StopReason and the rank that reports it into a word that is never 0.
constexpr uint64_t report_of(StopReason why, int rank) {
  return uint64_t{static_cast<uint32_t>(why)} << 32 | static_cast<uint32_t>(rank + 1);
}
constexpr StopReason reason_of(uint64_t report) { return static_cast<StopReason>(report >> 32); }
constexpr int reporter_of(uint64_t report) { return static_cast<int>(report & 0xff) - 1; }

// The beginning of a workspace.
struct WorkspaceHeader {
  // Every launch reads the first 128 bytes.
  // arrival_word() of the newest launch, by rank. Each rank writes its own entry in all workspaces.
  // It writes the one in its own workspace when all of its blocks know the launch.
  uint64_t arrival[kMaxRanks];
  uint64_t launches;   // collectives of this rank
  uint64_t stop;       // StopReason
  uint64_t reported;   // report_of(): why a peer reports that this rank has to stop
  uint64_t exchanges;  // exchanges of messages by this rank
  uint64_t line[4];
  // For the blocks of this rank. Pairs are by parity of the launch; a launch resets the entry of
  // the next one.
  uint32_t ticket;              // blocks that know the launch's number
  uint32_t exited_blocks[2];    // blocks that have ended their work
  uint32_t poisoned_pieces[2];  // pieces of the output that a block fills with NaN
  uint32_t quiesced;            // KernelControl::quiesced when last read
  uint64_t last_check_ns;       // when a warp of this rank last read KernelControl::abort
};
static_assert(offsetof(WorkspaceHeader, ticket) == 128);

// Returns the slots of a worker for each peer in a generation: one for LL, a ring for LL128.
constexpr int slots_per_generation(PacketProtocol protocol) {
  return protocol == PacketProtocol::kLL ? 1 : kRing;
}
constexpr size_t slot_bytes(PacketProtocol protocol) {
  return protocol == PacketProtocol::kLL          ? kLLSlot
         : protocol == PacketProtocol::kLongLL128 ? kLongLL128Slot
                                                  : kLL128Slot;
}
constexpr int most_workers(PacketProtocol protocol, int ranks) {
  return protocol == PacketProtocol::kLL ? kLLWorkers : ll128_workers(ranks);
}
// Returns the bytes of all workers' slots for one peer. All kinds of LL128 share the same slots.
constexpr size_t generation_bytes(PacketProtocol protocol, int ranks) {
  const size_t slot = protocol == PacketProtocol::kLL ? kLLSlot
                      : has_long_ll128(ranks)         ? kLongLL128Slot
                                                      : kLL128Slot;
  return static_cast<size_t>(most_workers(protocol, ranks) * slots_per_generation(protocol)) * slot;
}

// Returns the rank that is `i` (0 to `ranks`) after `rank`, in a circle. Ranks that loop over their
// peers thus begin with different ones.
constexpr int rank_after(int rank, int i, int ranks) {
  return rank + i < ranks ? rank + i : rank + i - ranks;
}

// Returns the index of `peer` among the peers of `owner`. A rank has no slots for itself.
constexpr int peer_index(int owner, int peer) { return peer < owner ? peer : peer - 1; }
// Returns the offset, in the slots of a protocol, where `source` writes and `receiver` reads. What
// a source writes in a step is adjacent: 4 ranks whose slots lay by worker and then by source
// reached 235 GB/s instead of 340 of a GPU's stores.
constexpr size_t slot_offset(PacketProtocol protocol, int ranks, int worker, int generation,
                             int index, int receiver, int source) {
  const int run = peer_index(receiver, source) * 2 + generation;
  const int slot = index * most_workers(protocol, ranks) + worker;
  return static_cast<size_t>(run) * generation_bytes(protocol, ranks) +
         static_cast<size_t>(slot) * slot_bytes(protocol);
}
// Returns the offset, from WorkspaceLayout::acks, where a sender reads how many steps `receiver`
// has finished.
constexpr size_t ack_offset(int worker, int receiver) {
  return sizeof(uint64_t) * static_cast<size_t>(worker * kMaxRanks + receiver);
}

}  // namespace torch::comms::ctran::kernels
