#pragma once

#include "ctran/kernels/cells.hpp"
#include "ctran/kernels/params.hpp"
#include "ctran/kernels/region_layout.hpp"
#include "ctran/kernels/regions.hpp"

// A call on a region as the kernels understand it: pure functions of it.
namespace torch::comms::ctran::kernels {

inline constexpr int kRegionThreads = 512;
inline constexpr int kPushingThreads = 2 * kRegionThreads;  // of what pushes_operands()
// Tiles of a block that its copy unit has under way: some are being loaded, the others stored.
inline constexpr int kBulkStages = 6, kBulkLoads = 3;

// Beside Params: `bytes` is Call::count in bytes, `output_bytes` those of the whole output. Of
// reductions `input` is the tensor that is in the region, and `output` where this rank's own part
// goes where it has it to itself alone.
struct RegionParams : Params {
  char* memory[kMaxRanks];
  Place place;             // of what is in memory[rank]
  size_t words, operands;  // in the workspaces
  size_t forwarded;
  Range made;  // of reductions: the bytes of all tensors that this rank reduces
  Rounds rounds;
  uint32_t push_to, pushed_from;   // bits by rank: who is told, and hears of, what is done
  uint32_t write_to;               // of reductions: in whose tensors the part is written
  int32_t blocks, copying_blocks;  // the latter have what this rank has for itself
  bool is_one_place;               // tensors have the same offset on all ranks
  bool pushes_operands;            // see has_operand_slots(); rounds: its steps
};

// Whether it is for regions, and makes sense on this rank.
bool is_for_regions(int ranks, const Call& call);
bool is_sound(const Team& team, const RegionCall& call);

// Where copies have a part in it: of a launch that moves nothing, in which the ranks tell their
// places, and hear that the others have come as far.
RegionParams params_of(const Team& team, const RegionCall& call);
// What kAutomatic is where there is a copy unit: it begins 2 us later than stores do.
Carrier usual_carrier(int ranks, const Call& call);
// Whether operands are pushed. Of a call that is sound.
bool pushes_operands(int ranks, const RegionCall& call);
// How many blocks carry or reduce, of which `longest` is the longest run of bytes; `wanted`: as
// Call::blocks.
int blocks_of(int ranks, Collective collective, size_t longest, int wanted);

// A kernel, and the shared memory that each of its blocks is given; `carrier`: not kAutomatic.
struct RegionKernel {
  const void* kernel = nullptr;
  size_t shared_bytes = 0;
};
RegionKernel find_push(Carrier carrier);
// Of a Copy (region_copies.hpp) on this rank, of any alignment, by blocks of kRegionThreads. They
// have to be as fast as the copies to peers, of which each has a share of 390 GB/s: a block copies
// 32 GB/s (four H200).
const void* find_own_copy();
constexpr int own_blocks(int ranks) {
  return static_cast<int>(quotient_up(16, static_cast<size_t>(ranks - 1)));
}
// Of what pushes_operands().
const void* find_pushed_reduction(Cell cell);
// Null where there is none. They have no shared memory, whatever the carrier.
const void* find_region_reduction_of_floats(Cell cell, int ranks);
const void* find_region_reduction_of_small_floats(Cell cell, int ranks);
const void* find_region_reduction_of_integers(Cell cell, int ranks);

}  // namespace torch::comms::ctran::kernels
