#pragma once

#include <cstdint>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/host/library.hpp"

// Collectives whose outputs the peers write themselves, or whose operands they read where these
// lie, for a library of kernels that has them: an entry beside that of library.hpp. Data go once
// over the wire to where they are wanted; nothing is staged, nothing is copied at the receiver.
//
// A region is memory of each rank that all ranks of a team map. The ranks know it by a number that
// they have given it alike.
namespace torch::comms::ctran::kernels {

// How bytes are carried to a peer. Ranks need not agree on it, but for what uses_copy_engines().
// What is reduced, the threads of blocks read where it lies, or push to who reduces it; copy
// engines carry what an all-reduce has made.
enum class CopyMethod : uint8_t {
  kAutomatic,
  kStores,      // by the threads of a block, 16 bytes each
  kTma,         // by the copy unit of a processor, which one thread feeds; since Hopper
  kCopyEngine,  // by copy engines, while one warp of a processor waits for the peers
};

// All-gather, all-to-all and broadcast have their outputs in a region: `call.output` is anywhere in
// memory[rank], also in place, on every rank at an offset of its own. Both have any alignment.
//
// All-reduce, reduce and reduce-scatter have their inputs there; the first two are in place, on the
// root of a reduce alone. A rank makes a part of the result from all inputs, in the order of ranks,
// and writes it to the ranks that want it. No factors, for those are their ranks' own.
//
// A launch is one of the team's collectives, with their order, numbers, limit and stops. It may
// write an output as soon as that rank has begun the launch. If the ranks do not agree on region or
// bytes the launch stops with kWindowMismatch. After a stop outputs are undefined, and those peers
// who have not stopped yet may still write to them.
//
// Where copy engines have a part, all ranks have their outputs, or tensors of an all-reduce, at one
// offset, for the copies are given their places before the ranks have met; if one has not, the
// launch stops as above, and what is in the regions is undefined. Nothing stops a copy: after a
// stop those that are enqueued still write to the peers' memory, whether these have begun or not,
// and so they do in replays. It is two launches with copies between, three where a broadcast is
// forwarded, each with the limit. All copies are from this rank's own memory: pushes. Where one
// process has several ranks, what a rank pulls would be in the queue of its peer's copy engines,
// before what that has to copy first. What an all-gather or all-to-all leaves on its rank is copied
// on a stream of its own, where the call has one, beside the copies to peers.
//
// The first launch of an all-reduce makes this rank's part, in its own tensor, and copies take that
// to the others. No rank waits for another in between: of the others' tensors, a rank alone reads
// the part that it makes. Reduce and reduce-scatter leave nothing to copy, and have the other
// carriers' launch.
struct WindowCollectiveCall {
  // Of the rank's device: a stream, of which no other use is made, and events to go to it and to
  // come back. The launches of a team may share them, and they outlive what is enqueued. All are
  // null where there is none: the copy is on the call's stream then.
  struct SideStreamHandles {
    void* stream;
    void* forked;
    void* joined;
  };

  KernelCall call;  // algorithm: kAutomatic; blocks: of those that push or reduce, 0: as the
                    // library thinks best
  CopyMethod copy_method;
  uint32_t window_id;
  void* memory[kMaxRanks];  // by rank, as this process maps it; null where that has none
  size_t bytes[kMaxRanks];  // of that memory; for kCopyEngine
  SideStreamHandles side_stream;
};

// Whether copy engines have a part in it.
constexpr bool uses_copy_engines(const WindowCollectiveCall& call) {
  const auto collective = call.call.collective;
  return call.copy_method == CopyMethod::kCopyEngine &&
         (!is_reduction(collective) || collective == Collective::kAllReduce);
}

// One more reason of a stop: what is in the region here and at waited_for is in different ones, or
// has different sizes.
inline constexpr StopReason kWindowMismatch =
    static_cast<StopReason>(static_cast<uint32_t>(StopReason::kCallMismatch) + 1);

struct WindowCollectiveTable {
  uint32_t version;  // kWindowCollectivesVersion
  // As KernelFunctionTable's: whether run_loop() takes it; depends on what is alike on all ranks.
  bool (*can_launch)(int32_t ranks, const KernelCall& call);
  // Enqueues it, as KernelFunctionTable::launch.
  int (*launch)(const TeamDescriptor& team, const WindowCollectiveCall& call, void* stream);
};
inline constexpr uint32_t kWindowCollectivesVersion = 6;

// A library without this symbol has none of it. To be asked for once kSymbol's has been called.
inline constexpr const char* kWindowCollectivesSymbol = "torchcomms_kernels_regions";
using WindowCollectiveEntry = const WindowCollectiveTable* (*)();

}  // namespace torch::comms::ctran::kernels
