#pragma once

#include "ctran/kernels/params.hpp"
#include "ctran/kernels/region_layout.hpp"
#include "ctran/kernels/regions.hpp"

// A call on a region as the kernels understand it: pure functions of it.
namespace torch::comms::ctran::kernels {

inline constexpr int kRegionThreads = 512;
// Tiles of a block that its copy unit has under way: some are being loaded, the others stored.
inline constexpr int kBulkStages = 6, kBulkLoads = 3;

// Beside Params: `bytes` is Call::count in bytes, `output_bytes` those of the whole output.
struct RegionParams : Params {
  char* memory[kMaxRanks];
  Place place;   // of the output in memory[rank]
  size_t words;  // in the workspaces
  size_t forwarded;
  Rounds rounds;
  uint32_t push_to, pushed_from;   // bits by rank
  int32_t blocks, copying_blocks;  // the latter have what this rank has for itself
  bool is_one_place;               // outputs have the same offset on all ranks
};

// Whether it is for regions, and makes sense on this rank.
bool is_for_regions(int ranks, const Call& call);
bool is_sound(const Team& team, const RegionCall& call);

// Of kCopies: of a launch that moves nothing, in which the ranks tell their places, and hear that
// the others have come as far.
RegionParams params_of(const Team& team, const RegionCall& call);

// Of kCopies: what this rank has copied in a stage, between two such launches.
struct Copy {
  char* to;
  const char* from;
  size_t bytes;
};
struct Copies {
  Copy all[kMaxRanks];
  int count = 0;
};
int stages_of(const Team& team, const RegionCall& call);
Copies copies_of(const Team& team, const RegionCall& call, int stage);

// A kernel, not kAutomatic's, and the shared memory that each of its blocks is given.
const void* find_push(Carrier carrier);
size_t shared_bytes_of(Carrier carrier);

}  // namespace torch::comms::ctran::kernels
