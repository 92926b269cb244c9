#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/protocol/flags.hpp"

// What collectives have in a workspace (workspace_layout.hpp), as pure functions of the number of
// ranks.
//
// Data reach a peer through slots of its workspace: every worker of a launch has a ring of them for
// each peer. The parts of a workspace never hold data of two formats, so that what a launch left
// behind cannot look like a flag to a later one.
//
// Why a slot may be written anew:
// - Between launches: before launch k, a rank waits until all have begun k - 1, so have finished
//   k - 2. Launches k and k - 2 share a generation of slots, k and k - 1 do not.
// - Within a launch: worker w of a rank hears only from workers w of others, and sends step s + 1
//   before it takes step s. Where each hears from each that it sends to, having step s - 1 of a
//   peer says that the peer has taken step s - 3: four slots are enough. Where not, receivers
//   acknowledge their steps.
namespace torch::comms::ctran::kernels {

// How data are told from what was there before. LL: 4 bytes of flag beside each 4. Line: 8 beside
// each 120. Wide lines are lines of which the threads with the flag hold no data, for elements of
// 16 bytes that have to be in one place.
// Long lines are more of them to a tile: they move more at once, and are later to begin. Two ranks
// alone have them.
enum class PacketProtocol : uint8_t { kLL, kLL128, kLongLL128, kWideLL128 };

inline constexpr int kWarp = 32;
inline constexpr int kMostThreads = 512;
inline constexpr int kMostBlocks = 128;
inline constexpr int kRing = 4;  // slots of a worker for a peer in one generation

// A slot and the data that it takes.
inline constexpr size_t kLLTile = 512, kLLSlot = 1024;
inline constexpr int kLL128Vectors = 2, kLongLL128Vectors = 4;
inline constexpr size_t kLL128Slot = size_t{kLL128Vectors} * 512;
inline constexpr size_t kLongLL128Slot = size_t{kLongLL128Vectors} * 512;
inline constexpr size_t kLL128Tile = size_t{kLL128Vectors} * 480;
inline constexpr size_t kLongLL128Tile = size_t{kLongLL128Vectors} * 480;
inline constexpr size_t kWideLL128Tile = size_t{kLL128Vectors} * 448;

// Workers are warps.
inline constexpr int kLLWorkers = 256;
constexpr int ll128_workers(int ranks) { return ranks == 2 ? 2048 : ranks <= 4 ? 1024 : 512; }
constexpr bool has_long_ll128(int ranks) { return ranks == 2; }

// Stop and the rank that says so, in a word that is 0 before.
constexpr uint64_t report_of(StopReason why, int rank) {
  return uint64_t{static_cast<uint32_t>(why)} << 32 | static_cast<uint32_t>(rank + 1);
}
constexpr StopReason reason_of(uint64_t report) { return static_cast<StopReason>(report >> 32); }
constexpr int reporter_of(uint64_t report) { return static_cast<int>(report & 0xff) - 1; }

// The beginning of a workspace.
struct WorkspaceHeader {
  // What every launch reads: one line of 128 bytes.
  // By rank: arrival_word() of its newest launch; written by that rank, which writes its own when
  // all of its blocks know it.
  uint64_t arrival[kMaxRanks];
  uint64_t launches;   // of this rank
  uint64_t stop;       // Stop
  uint64_t reported;   // report_of(): why a peer says that this rank has to stop
  uint64_t exchanges;  // of this rank: launches of messages
  uint64_t line[4];
  // For the blocks of this rank. Pairs: by parity of the launch, the next launch's made zero here.
  uint32_t ticket;              // blocks that know the launch's number
  uint32_t exited_blocks[2];    // blocks that have left their work
  uint32_t poisoned_pieces[2];  // pieces of the output that someone fills with NaN
  uint32_t quiesced;            // Control::gone, at the last look at it
  uint64_t last_check_ns;       // when one of this rank's warps last looked at KernelControl::abort
};
static_assert(offsetof(WorkspaceHeader, ticket) == 128);

// The slots of a worker for each peer in a generation: of LL one, of lines a ring.
constexpr int slots_per_generation(PacketProtocol wire) {
  return wire == PacketProtocol::kLL ? 1 : kRing;
}
constexpr size_t slot_bytes(PacketProtocol wire) {
  return wire == PacketProtocol::kLL          ? kLLSlot
         : wire == PacketProtocol::kLongLL128 ? kLongLL128Slot
                                              : kLL128Slot;
}
constexpr int most_workers(PacketProtocol wire, int ranks) {
  return wire == PacketProtocol::kLL ? kLLWorkers : ll128_workers(ranks);
}
// Those of all workers for one peer. Lines of all kinds share theirs.
constexpr size_t generation_bytes(PacketProtocol wire, int ranks) {
  const size_t slot = wire == PacketProtocol::kLL ? kLLSlot
                      : has_long_ll128(ranks)     ? kLongLL128Slot
                                                  : kLL128Slot;
  return static_cast<size_t>(most_workers(wire, ranks) * slots_per_generation(wire)) * slot;
}

// The rank that is `i` after this one, from 0 to as many as there are: all ranks that go through
// the others so begin with another one.
constexpr int rank_after(int rank, int i, int ranks) {
  return rank + i < ranks ? rank + i : rank + i - ranks;
}

// Where, in a region, `receiver` finds what `source` sent, and `source` puts it. A rank has no
// slots for itself. What a source writes in a step lies together: 4 ranks whose slots lay by worker
// and then by source had 235 GB/s instead of 340 of a GPU's stores.
constexpr int peer_index(int owner, int peer) { return peer < owner ? peer : peer - 1; }
constexpr size_t slot_offset(PacketProtocol wire, int ranks, int worker, int generation, int index,
                             int receiver, int source) {
  const int run = peer_index(receiver, source) * 2 + generation;
  const int slot = index * most_workers(wire, ranks) + worker;
  return static_cast<size_t>(run) * generation_bytes(wire, ranks) +
         static_cast<size_t>(slot) * slot_bytes(wire);
}
// Where, after WorkspaceLayout::acks, a sender sees how many steps `receiver` has finished.
constexpr size_t ack_offset(int worker, int receiver) {
  return sizeof(uint64_t) * static_cast<size_t>(worker * kMaxRanks + receiver);
}

}  // namespace torch::comms::ctran::kernels
