#pragma once

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/protocol/params.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"
#include "ctran/kernels/windows/window_layout.hpp"

// A call on a region as the kernels understand it: pure functions of it.
namespace torch::comms::ctran::kernels {

inline constexpr int kWindowThreads = 512;
inline constexpr int kPushingThreads = 2 * kWindowThreads;  // of what pushes_operands()
// Tiles of a block that its copy unit has under way: some are being loaded, the others stored.
inline constexpr int kTmaStages = 6, kTmaLoads = 3;

// Beside CollectiveParams: `bytes` is KernelCall::count in bytes, `output_bytes` those of the whole
// output. Of reductions `input` is the tensor that is in the region, and `output` where this rank's
// own part goes where it has it to itself alone.
struct WindowCollectiveParams : CollectiveParams {
  char* memory[kMaxRanks];
  TensorLocation location;  // of what is in memory[rank]
  size_t words, operands;   // in the workspaces
  size_t forwarded;
  TensorRange made;  // of reductions: the bytes of all tensors that this rank reduces
  PushRounds rounds;
  uint32_t push_to, pushed_from;      // bits by rank: who is told, and hears of, what is done
  uint32_t write_to;                  // of reductions: in whose tensors the part is written
  int32_t blocks, local_copy_blocks;  // the latter have what this rank has for itself
  bool has_same_offset;               // tensors have the same offset on all ranks
  bool pushes_operands;               // see has_operand_slots(); rounds: its steps
};

// Whether it is for regions, and makes sense on this rank.
bool can_run_on_window(int ranks, const KernelCall& call);
bool is_valid(const TeamDescriptor& team, const WindowCollectiveCall& call);

// Where copies have a part in it: of a launch that moves nothing, in which the ranks tell their
// places, and hear that the others have come as far.
WindowCollectiveParams params_of(const TeamDescriptor& team, const WindowCollectiveCall& call);
// What kAutomatic is where there is a copy unit: it begins 2 us later than stores do.
CopyMethod default_copy_method(int ranks, const KernelCall& call);
// Whether operands are pushed. Of a call that is sound.
bool pushes_operands(int ranks, const WindowCollectiveCall& call);
// How many blocks carry or reduce, of which `longest` is the longest run of bytes; `wanted`: as
// Call::blocks.
int blocks_of(int ranks, Collective collective, size_t longest, int wanted);

// A kernel, and the shared memory that each of its blocks is given; `carrier`: not kAutomatic.
struct WindowCollectiveKernel {
  const void* kernel = nullptr;
  size_t shared_bytes = 0;
};
WindowCollectiveKernel find_push(CopyMethod carrier);
// Of a DeviceCopy (region_copies.hpp) on this rank, of any alignment, by blocks of kWindowThreads.
// They have to be as fast as the copies to peers, of which each has a share of 390 GB/s: a block
// copies 32 GB/s (four H200).
const void* find_local_copy();
constexpr int default_local_copy_blocks(int ranks) {
  return static_cast<int>(quotient_up(16, static_cast<size_t>(ranks - 1)));
}
// Of what pushes_operands().
const void* find_pushed_reduction(ReducerId cell);
// Null where there is none. They have no shared memory, whatever the carrier.
const void* find_window_reduction_of_floats(ReducerId cell, int ranks);
const void* find_window_reduction_of_small_floats(ReducerId cell, int ranks);
const void* find_window_reduction_of_integers(ReducerId cell, int ranks);

}  // namespace torch::comms::ctran::kernels
