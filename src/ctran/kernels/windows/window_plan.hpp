#pragma once

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/protocol/params.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"
#include "ctran/kernels/windows/window_layout.hpp"

// Prepares the launch of a window collective: pure functions of the call.
namespace torch::comms::ctran::kernels {

inline constexpr int kWindowThreads = 512;
inline constexpr int kPushingThreads = 2 * kWindowThreads;  // where pushes_operands()
// Tiles of a block that its TMA unit has in flight: kTmaLoads are being loaded, the others stored.
inline constexpr int kTmaStages = 6, kTmaLoads = 3;

// Parameters of a window kernel. `bytes` is KernelCall::count in bytes, `output_bytes` those of the
// whole output. For reductions, `input` is the tensor in the window; `output` is where this rank's
// part goes if no other rank gets it.
struct WindowCollectiveParams : CollectiveParams {
  char* memory[kMaxRanks];
  TensorLocation location;  // of the tensor in memory[rank]
  size_t words, operands;   // offsets in the workspaces
  size_t forwarded;
  TensorRange reduce_range;  // of reductions: the bytes of all tensors that this rank reduces
  PushRounds rounds;
  uint32_t push_to, pushed_from;      // bit masks: ranks to signal, and to wait for
  uint32_t write_to;                  // of reductions: ranks in whose tensors the part is written
  int32_t blocks, local_copy_blocks;  // the latter copy this rank's part for itself
  bool has_same_offset;               // tensors have the same offset on all ranks
  bool pushes_operands;               // see has_operand_slots(); rounds: its steps
};

// Whether a window collective can run the call; is_valid() also checks this rank's memory.
bool can_run_on_window(int ranks, const KernelCall& call);
bool is_valid(const TeamDescriptor& team, const WindowCollectiveCall& call);

// Returns the parameters of the kernel. With copy engines, they are for a launch that moves
// nothing: ranks exchange their locations, and wait until all peers have come as far.
WindowCollectiveParams params_of(const TeamDescriptor& team, const WindowCollectiveCall& call);
// Returns what kAutomatic stands for where SMs have a TMA unit, which begins 2 us later than
// stores.
CopyMethod default_copy_method(int ranks, const KernelCall& call);
// Whether operands of a valid call are pushed.
bool pushes_operands(int ranks, const WindowCollectiveCall& call);
// Returns how many blocks copy or reduce. `longest`: the longest run of bytes. `wanted`: as
// KernelCall::blocks.
int blocks_of(int ranks, Collective collective, size_t longest, int wanted);

// A kernel and the shared memory of each of its blocks. `copy_method` must not be kAutomatic.
struct WindowCollectiveKernel {
  const void* kernel = nullptr;
  size_t shared_bytes = 0;
};
WindowCollectiveKernel find_push(CopyMethod copy_method);
// Returns the kernel of a DeviceCopy (window_copies.hpp) on this rank, of any alignment, by blocks
// of kWindowThreads. It has to be as fast as the copies to peers, each of which has a share of 390
// GB/s; a block copies 32 GB/s (four H200).
const void* find_local_copy();
constexpr int default_local_copy_blocks(int ranks) {
  return static_cast<int>(quotient_up(16, static_cast<size_t>(ranks - 1)));
}
// Returns the kernel of a call that pushes_operands().
const void* find_pushed_reduction(ReducerId id);
// These return null if there is no such kernel. The kernels need no dynamic shared memory, with any
// copy method.
const void* find_window_reduction_of_floats(ReducerId id, int ranks);
const void* find_window_reduction_of_small_floats(ReducerId id, int ranks);
const void* find_window_reduction_of_integers(ReducerId id, int ranks);

}  // namespace torch::comms::ctran::kernels
