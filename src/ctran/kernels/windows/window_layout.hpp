#pragma once

#include "ctran/kernels/messages/message_layout.hpp"
#include "ctran/kernels/protocol/portable.hpp"
#include "ctran/kernels/protocol/tiling.hpp"

// What a workspace holds for regions; and who pushes which bytes to whom, or makes which part of a
// result, cut into tiles: pure functions of a call.
//
// A launch on one rank tells each peer where its output is, which says that it may be written as
// well, and pushes to those whose places have come. A reduction tells where its input is, which may
// be read from then on, and makes its part once all places have come. Every block has tiles of its
// own, the same on all ranks, and hears from the blocks of the same index alone.
namespace torch::comms::ctran::kernels {

inline constexpr int kMaxWindowBlocks = 128;
inline constexpr size_t kWindowTile = size_t{16} << 10;

// Where a rank's output, or its input of a reduction, is in its memory of a region, and how long
// all of it is.
struct TensorLocation {
  uint64_t offset, bytes, window_id;
  bool operator==(const TensorLocation&) const = default;
};
// The same in words that are whole each: 20 bits of it in the place of a line's step, so that no
// fence is needed between them. Of bytes and region, which are only compared, the low bits.
inline constexpr int kLocationWords = 6;
constexpr uint64_t location_word(const TensorLocation& place, uint64_t launch, uint64_t print,
                                 int word) {
  const uint64_t parts[kLocationWords] = {
      place.offset, place.offset >> kStepBits, place.offset >> 2 * kStepBits,
      place.bytes,  place.bytes >> kStepBits,  place.window_id};
  return ll128_flag(launch, print, word) | (parts[word] & (kMostSteps - 1));
}
constexpr bool is_of_launch(uint64_t word, uint64_t launch) {
  return launch_in(word) == launch_in(ll128_flag(launch, 0, 0));
}
// Whether words of the same launch come from a rank that has called the same.
constexpr bool is_of_call(const uint64_t (&words)[kLocationWords], uint64_t launch,
                          uint64_t print) {
  for (int i = 0; i < kLocationWords; ++i)
    if (words[i] >> kStepBits != ll128_flag(launch, print, i) >> kStepBits) return false;
  return true;
}
constexpr uint64_t offset_in(const uint64_t (&words)[kLocationWords]) {
  constexpr uint64_t kLow = kMostSteps - 1;
  return (words[0] & kLow) | (words[1] & kLow) << kStepBits | (words[2] & kLow) << 2 * kStepBits;
}
// Whether bytes and region are those of `place`, and where it has to be, the offset.
constexpr bool matches_location(const uint64_t (&words)[kLocationWords],
                                const TensorLocation& place, bool is_same) {
  for (int i = is_same ? 0 : 3; i < kLocationWords; ++i)
    if (((words[i] ^ location_word(place, 0, 0, i)) & (kMostSteps - 1)) != 0) return false;
  return true;
}

// What a rank keeps for its peers, who write it.
struct WindowSyncWords {
  // By parity of the launch, and source. Before launch k a rank waits until all have begun k - 1,
  // so have finished k - 2.
  struct alignas(64) LocationWords {
    uint64_t words[kLocationWords];
  };
  LocationWords locations[2][kMaxRanks];
  // By block and source, as tag_of(launch, rounds): how far that has come with what it pushes here,
  // and where operands are pushed, with what it makes of those.
  alignas(128) uint64_t pushed[kMaxWindowBlocks][kMaxRanks];
  alignas(128) uint64_t made[kMaxWindowBlocks][kMaxRanks];
  using BlockCounters = uint64_t (WindowSyncWords::*)[kMaxWindowBlocks][kMaxRanks];
};

// An all-reduce of three or four ranks may push its operands: each rank those that a peer reduces,
// a tile of each block in a step, to slots of that peer, and the peer what it has made of them
// straight to all tensors. GPUs store faster than they load from each other.
//
// A block has two slots for each source. Some of its threads push, the others make, each at their
// own pace: step s + 2 is pushed once all have made step s, so have read their slots. A launch ends
// when all have made all steps: all slots are free, and the result is whole.
constexpr bool has_operand_slots(int ranks) { return ranks == 3 || ranks == 4; }
inline constexpr int kOperandRing = 2;
// From where the slots begin. What a source pushes in a step lies together.
constexpr size_t operand_offset(int owner, int source, int block, uint64_t step) {
  const auto run =
      static_cast<uint64_t>(peer_index(owner, source) * kOperandRing) + step % kOperandRing;
  return (run * kMaxWindowBlocks + static_cast<uint64_t>(block)) * kWindowTile;
}
constexpr uint64_t steps_of_pushes(size_t longest, int blocks) {
  return quotient_up(quotient_up(longest, kWindowTile), static_cast<size_t>(blocks));
}
// How many steps all have to have made before this one is pushed.
constexpr uint64_t made_before_push(uint64_t step) {
  return step < kOperandRing ? 0 : step - kOperandRing + 1;
}

// Of all slots for a source.
constexpr size_t operands_bytes() { return size_t{kOperandRing} * kMaxWindowBlocks * kWindowTile; }

// A broadcast goes through all ranks but the root, a part each, who forward their part to each
// other: so each byte leaves the root once. Of two ranks the other has all.
constexpr size_t forwarded_part(size_t bytes, int ranks) { return part_bytes(bytes, ranks - 1); }

// The longest run of bytes that a rank pushes to another, or reduces. `bytes`: Call::count in
// bytes.
constexpr size_t longest_run(Collective collective, size_t bytes, int ranks) {
  if (collective == Collective::kBroadcast) return forwarded_part(bytes, ranks);
  const bool has_parts = collective == Collective::kAllReduce || collective == Collective::kReduce;
  return has_parts ? part_bytes(bytes, ranks) : bytes;
}

// What one rank pushes to another: bytes at `from` of its input, or of its own output, which it
// has from the root.
struct PushedRange {
  size_t from, into, bytes;
  bool is_forwarded;
};
// `bytes`: Call::count in bytes. `part`: forwarded_part(). To this rank itself there is nothing.
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

// The bytes of all inputs that one rank reduces. `bytes`: Call::count in bytes. `part`:
// part_bytes() of them.
constexpr TensorRange made_by(Collective collective, size_t bytes, size_t part, int rank) {
  if (collective != Collective::kReduceScatter) return part_of(bytes, part, rank);
  const size_t begin = static_cast<size_t>(rank) * bytes;
  return {begin, begin + bytes};
}

// A transfer's tiles go to the blocks in turn. Rounds are of so many tiles of a block: what a
// broadcast's root has pushed in a round is forwarded while it pushes the next ones.
constexpr uint64_t tiles_of_block(size_t bytes, int blocks, int block) {
  const uint64_t tiles = quotient_up(bytes, kWindowTile);
  const auto all = static_cast<uint64_t>(blocks), own = static_cast<uint64_t>(block);
  return tiles <= own ? 0 : (tiles - own + all - 1) / all;
}
struct PushRounds {
  uint64_t count, tiles;
};
// `longest`: bytes of the longest transfer of any rank; `forwards`: some rank does.
constexpr PushRounds rounds_of_pushes(size_t longest, int blocks, bool forwards) {
  constexpr uint64_t kMost = 16, kLeastTiles = 8;
  const uint64_t tiles = tiles_of_block(longest, blocks, 0);
  if (!forwards || tiles <= kLeastTiles) return {1, tiles};
  const uint64_t even = quotient_up(tiles, kMost);
  const uint64_t each = even < kLeastTiles ? kLeastTiles : even;
  return {quotient_up(tiles, each), each};
}

// Bytes that go to `address`: the 16-byte vectors that are aligned there, and what is before and
// after them.
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
