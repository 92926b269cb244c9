#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/kernels/protocol/layout.hpp"

// Divides tensors into parts of ranks, and parts into tiles of workers. Pure functions.
namespace torch::comms::ctran::kernels {

constexpr size_t quotient_up(size_t whole, size_t part) {
  return whole / part + (whole % part != 0 ? 1 : 0);
}

// Returns how many bytes are read or written at once where 16 is impossible. This is the largest
// power of two, at most 8, that divides all of `bits` (addresses and sizes, or-ed).
constexpr uint32_t unit_of(uint64_t bits) {
  const uint64_t lowest = bits & (~bits + 1);
  return lowest == 0 || lowest > 8 ? 8 : static_cast<uint32_t>(lowest);
}

// Returns the size of a rank's part of a tensor of `bytes`. Every part begins at a multiple of 128
// bytes; only the last parts may be shorter.
constexpr size_t part_bytes(size_t bytes, int ranks) {
  return quotient_up(quotient_up(bytes, static_cast<size_t>(ranks)), 128) * 128;
}
struct TensorRange {
  size_t begin, end;
};
// Returns the part of `rank`, empty at the tensor's end if it has none. `part` is part_bytes(),
// which the host computes because divisions are slow on a GPU.
constexpr TensorRange part_of(size_t bytes, size_t part, int rank) {
  const size_t begin = part * static_cast<size_t>(rank);
  if (begin >= bytes) return {bytes, bytes};
  return {begin, bytes - begin < part ? bytes : begin + part};
}
// Returns the part of `rank` where rank `without_part` has none (kMaxRanks: every rank has one). If
// a rank has none, `part` is part_bytes() for one rank less.
constexpr TensorRange part_of(size_t bytes, size_t part, int rank, int without_part) {
  if (rank == without_part) return {bytes, bytes};
  return part_of(bytes, part, rank < without_part ? rank : rank - 1);
}

constexpr size_t tile_bytes(PacketProtocol protocol) {
  constexpr size_t kBytes[] = {kLLTile, kLL128Tile, kLongLL128Tile, kWideLL128Tile};
  return kBytes[static_cast<int>(protocol)];
}
// Returns the steps that `workers` need for `bytes`, with one tile of each worker in a step.
constexpr size_t steps_of(PacketProtocol protocol, size_t bytes, int workers) {
  return quotient_up(quotient_up(bytes, tile_bytes(protocol)), static_cast<size_t>(workers));
}

// An LL128 tile: of every 8 lanes of a warp, 7 hold 16 bytes of data. The last lane holds the flag
// and 8 bytes of data, or no data in a wide tile.
// A warp thus holds 480 bytes, the 28 vectors first, then the 4 half vectors; in a wide tile 448
// bytes.
constexpr bool holds_flag(uint32_t lane) { return lane % 8 == 7; }
constexpr size_t kNowhere = SIZE_MAX / 4;  // beyond all tensors
constexpr size_t ll128_offset(uint32_t lane, bool wide) {
  if (!holds_flag(lane)) return static_cast<size_t>(lane / 8 * 7 + lane % 8) * 16;
  return wide ? kNowhere : 448 + lane / 8 * 8;
}
constexpr size_t ll128_width(uint32_t lane) { return holds_flag(lane) ? 8 : 16; }

}  // namespace torch::comms::ctran::kernels
