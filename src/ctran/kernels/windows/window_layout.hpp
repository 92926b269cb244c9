#pragma once

#include "ctran/kernels/messages/message_layout.hpp"
#include "ctran/kernels/protocol/portable.hpp"
#include "ctran/kernels/protocol/tiling.hpp"

// The area of a workspace for window collectives. Also, which rank pushes which bytes to which
// rank, or makes which part of a result, in tiles: pure functions of a call.
//
// A launch publishes to each peer where this rank's output is, which also permits writing to it,
// and pushes to the peers whose locations have arrived. A reduction publishes where its input is,
// which peers may read from then on, and makes its part once all locations have arrived. Every
// block has tiles of its own, the same on all ranks, and is signaled only by blocks of the same
// index.
namespace torch::comms::ctran::kernels {

inline constexpr int kMaxWindowBlocks = 128;
inline constexpr size_t kWindowTile = size_t{16} << 10;

// Where a rank's output, or its input of a reduction, is in its memory of a window, and the size of
// the whole tensor.
struct TensorLocation {
  uint64_t offset, bytes, window_id;
  bool operator==(const TensorLocation&) const = default;
};
// Returns one word of a location. Each word is whole by itself: 20 bits of the location replace the
// step of an LL128 flag, so no fence is needed between words. Bytes and window are only compared,
// so their low bits are enough.
inline constexpr int kLocationWords = 6;
constexpr uint64_t location_word(const TensorLocation& location, uint64_t launch,
                                 uint64_t fingerprint, int word) {
  const uint64_t parts[kLocationWords] = {
      location.offset, location.offset >> kStepBits, location.offset >> 2 * kStepBits,
      location.bytes,  location.bytes >> kStepBits,  location.window_id};
  return ll128_flag(launch, fingerprint, word) | (parts[word] & (kMostSteps - 1));
}
constexpr bool is_of_launch(uint64_t word, uint64_t launch) {
  return launch_in(word) == launch_in(ll128_flag(launch, 0, 0));
}
// Whether words of the same launch come from a rank that has called the same.
constexpr bool is_of_call(const uint64_t (&words)[kLocationWords], uint64_t launch,
                          uint64_t fingerprint) {
  for (int i = 0; i < kLocationWords; ++i)
    if (words[i] >> kStepBits != ll128_flag(launch, fingerprint, i) >> kStepBits) return false;
  return true;
}
constexpr uint64_t offset_in(const uint64_t (&words)[kLocationWords]) {
  constexpr uint64_t kLow = kMostSteps - 1;
  return (words[0] & kLow) | (words[1] & kLow) << kStepBits | (words[2] & kLow) << 2 * kStepBits;
}
// Whether bytes and window are those of `location`, and also the offset if `is_same`.
constexpr bool matches_location(const uint64_t (&words)[kLocationWords],
                                const TensorLocation& location, bool is_same) {
  for (int i = is_same ? 0 : 3; i < kLocationWords; ++i)
    if (((words[i] ^ location_word(location, 0, 0, i)) & (kMostSteps - 1)) != 0) return false;
  return true;
}

// What a rank keeps for its peers, which write it.
struct WindowSyncWords {
  // By parity of the launch, and source. Before launch k a rank waits until all ranks have begun
  // k - 1 and thus finished k - 2.
  struct alignas(64) LocationWords {
    uint64_t words[kLocationWords];
  };
  LocationWords locations[2][kMaxRanks];
  // By block and source, as tag_of(launch, rounds): how many rounds the source has pushed to this
  // rank. Where operands are pushed, `reduced` counts the steps that the source has reduced.
  alignas(128) uint64_t pushed[kMaxWindowBlocks][kMaxRanks];
  alignas(128) uint64_t reduced[kMaxWindowBlocks][kMaxRanks];
  using BlockCounters = uint64_t (WindowSyncWords::*)[kMaxWindowBlocks][kMaxRanks];
};

// An all-reduce of three or four ranks may push its operands. In a step each rank pushes, from each
// block, a tile of the operands that a peer reduces to slots of that peer. The peer writes what it
// has made of them directly to all tensors. GPUs store to each other faster than they load from
// each other.
//
// A block has two slots for each source. Some of its threads push and the others reduce, each at
// its own pace. Step s + 2 is pushed once all ranks have reduced step s and thus have read their
// slots. A launch ends when all ranks have reduced all steps: all slots are then free, and the
// result is complete.
constexpr bool has_operand_slots(int ranks) { return ranks == 3 || ranks == 4; }
inline constexpr int kOperandRing = 2;
// Returns the offset of a slot from where the slots begin. What a source pushes in a step is
// adjacent.
constexpr size_t operand_offset(int owner, int source, int block, uint64_t step) {
  const auto run =
      static_cast<uint64_t>(peer_index(owner, source) * kOperandRing) + step % kOperandRing;
  return (run * kMaxWindowBlocks + static_cast<uint64_t>(block)) * kWindowTile;
}
constexpr uint64_t steps_of_pushes(size_t longest, int blocks) {
  return quotient_up(quotient_up(longest, kWindowTile), static_cast<size_t>(blocks));
}
// Returns how many steps all ranks must have reduced before this step is pushed.
constexpr uint64_t reduced_before_push(uint64_t step) {
  return step < kOperandRing ? 0 : step - kOperandRing + 1;
}

// Returns the bytes of all slots for one source.
constexpr size_t operands_bytes() { return size_t{kOperandRing} * kMaxWindowBlocks * kWindowTile; }

// Returns the part of a broadcast that each rank but the root forwards to the others, so that each
// byte leaves the root once. With two ranks, the peer of the root has all.
constexpr size_t forwarded_part(size_t bytes, int ranks) { return part_bytes(bytes, ranks - 1); }

// Returns the longest run of bytes that a rank pushes to another rank, or reduces. `bytes`:
// KernelCall::count in bytes.
constexpr size_t longest_run(Collective collective, size_t bytes, int ranks) {
  if (collective == Collective::kBroadcast) return forwarded_part(bytes, ranks);
  const bool has_parts = collective == Collective::kAllReduce || collective == Collective::kReduce;
  return has_parts ? part_bytes(bytes, ranks) : bytes;
}

// What one rank pushes to another: bytes at `from` of its input, or, if forwarded, of its own
// output, which it has from the root.
struct PushedRange {
  size_t from, into, bytes;
  bool is_forwarded;
};
// Returns what `rank` pushes to `peer`; nothing to itself. `bytes`: KernelCall::count in bytes.
// `part`: forwarded_part().
constexpr PushedRange push_of(Collective collective, int root, size_t bytes, size_t part, int rank,
                              int peer) {
  const auto own = static_cast<size_t>(rank), other = static_cast<size_t>(peer);
  if (rank == peer) return {};
  if (collective == Collective::kAllGather) return {0, own * bytes, bytes, false};
  if (collective == Collective::kAllToAll) return {other * bytes, own * bytes, bytes, false};
  if (peer == root) return {};
  const TensorRange range = part_of(bytes, part, peer_index(root, rank == root ? peer : rank));
  return {range.begin, range.begin, range.end - range.begin, rank != root};
}

// Returns the bytes of all inputs that one rank reduces. `bytes`: KernelCall::count in bytes.
// `part`: part_bytes() of them.
constexpr TensorRange reduce_range_of(Collective collective, size_t bytes, size_t part, int rank) {
  if (collective != Collective::kReduceScatter) return part_of(bytes, part, rank);
  const size_t begin = static_cast<size_t>(rank) * bytes;
  return {begin, begin + bytes};
}

// Returns the tiles of a transfer that a block has; tiles go to the blocks in turn. A round is a
// number of tiles of each block: what a broadcast's root has pushed in a round is forwarded while
// it pushes the next rounds.
constexpr uint64_t tiles_of_block(size_t bytes, int blocks, int block) {
  const uint64_t tiles = quotient_up(bytes, kWindowTile);
  const auto all = static_cast<uint64_t>(blocks), own = static_cast<uint64_t>(block);
  return tiles <= own ? 0 : (tiles - own + all - 1) / all;
}
struct PushRounds {
  uint64_t count, tiles;
};
// `longest`: bytes of the longest transfer of any rank. `forwards`: some rank forwards.
constexpr PushRounds rounds_of_pushes(size_t longest, int blocks, bool forwards) {
  constexpr uint64_t kMost = 16, kLeastTiles = 8;
  const uint64_t tiles = tiles_of_block(longest, blocks, 0);
  if (!forwards || tiles <= kLeastTiles) return {1, tiles};
  const uint64_t even = quotient_up(tiles, kMost);
  const uint64_t each = even < kLeastTiles ? kLeastTiles : even;
  return {quotient_up(tiles, each), each};
}

// Bytes that are copied to `address`: the 16-byte vectors that are aligned there, and the bytes
// before and after them.
struct UnalignedEnds {
  uint32_t head, tail;
  size_t middle;
};
constexpr UnalignedEnds ends_of(uint64_t address, size_t bytes) {
  const uint64_t before = (16 - (address & 15)) & 15;
  const auto head = static_cast<uint32_t>(before < bytes ? before : bytes);
  const size_t middle = (bytes - head) / 16 * 16;
  return {head, static_cast<uint32_t>(bytes - head - middle), middle};
}

}  // namespace torch::comms::ctran::kernels
