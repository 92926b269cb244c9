#pragma once

#include <cstdint>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/host/library.hpp"

// Window collectives: peers write outputs directly, or read operands where they lie. A library of
// kernels may have them; their symbol stands beside the one of library.hpp. Data travel once,
// directly to their destination; nothing is staged, and the receiver copies nothing.
//
// A window is memory of each rank that all ranks of a team map. All ranks give it the same number.
namespace torch::comms::ctran::kernels {

// How bytes get to a peer. Ranks need not agree on it, except on uses_copy_engines(). Operands of
// reductions are read by threads where they lie, or pushed to the rank that reduces them. Copy
// engines copy only the results of an all-reduce.
enum class CopyMethod : uint8_t {
  kAutomatic,
  kStores,      // by the threads of a block, 16 bytes each
  kTma,         // by the TMA unit of an SM, which one thread feeds; since Hopper
  kCopyEngine,  // by copy engines, while one warp waits for the peers
};

// A window collective. All-gather, all-to-all and broadcast have their outputs in a window:
// `call.output` is anywhere in memory[rank], also in place, on every rank at an offset of its own.
// Input and output have any alignment.
//
// All-reduce, reduce and reduce-scatter have their inputs in a window. The first two are in place,
// for a reduce on its root only. A rank makes a part of the result from all inputs, in rank order,
// and writes it to the ranks that need it. Factors are not supported, because each rank has its
// own.
//
// A launch is one of the team's collectives, with their order, numbers, timeout and stops. It may
// write to an output as soon as that rank has begun the launch. If ranks disagree on the window or
// on bytes, the launch stops with kWindowMismatch. After a stop outputs are undefined, and peers
// that have not stopped yet may still write to them.
//
// With copy engines, all outputs, or tensors of an all-reduce, must have the same offset on all
// ranks, because copies are enqueued before the ranks have exchanged locations. If an offset
// differs, the launch stops with kWindowMismatch, and the contents of the windows are undefined.
// Nothing stops a copy: after a stop, the enqueued copies still write to the peers' memory, whether
// these have begun or not, also in replays. The call is two launches with copies between, or three
// where a broadcast is forwarded. Each launch has the timeout. All copies are pushes from this
// rank's own memory. If one process has several ranks, a pull would queue in the peer's copy
// engines before copies that the peer has to make first. An all-gather or all-to-all copies this
// rank's part for itself on a side stream, if the call has one, in parallel with the copies to
// peers.
//
// The first launch of an all-reduce with copy engines makes this rank's part in its own tensor, and
// copies take the part to the peers. No rank waits for another in between, because only this rank
// reads this part of its peers' tensors. Reduce and reduce-scatter leave nothing to copy; they run
// the launch of the other copy methods.
struct WindowCollectiveCall {
  // Handles of the rank's device: a stream without other use, and events to fork to it and to join
  // it. The launches of a team may share them. They must outlive what is enqueued. All null: the
  // copy is on the call's stream.
  struct SideStreamHandles {
    void* stream;
    void* forked;
    void* joined;
  };

  KernelCall call;  // algorithm: kAutomatic; blocks: that push or reduce, 0: chosen by
                    // the library
  CopyMethod copy_method;
  uint32_t window_id;
  void* memory[kMaxRanks];  // by rank, as this process maps it; null if that rank has none
  size_t bytes[kMaxRanks];  // of that memory; for kCopyEngine
  SideStreamHandles side_stream;
};

// Whether copy engines take part in the call.
constexpr bool uses_copy_engines(const WindowCollectiveCall& call) {
  const auto collective = call.call.collective;
  return call.copy_method == CopyMethod::kCopyEngine &&
         (!is_reduction(collective) || collective == Collective::kAllReduce);
}

// Another reason for a stop: this rank's tensor and that of waited_for are in different windows, or
// have different sizes or, with copy engines, different offsets.
inline constexpr StopReason kWindowMismatch =
    static_cast<StopReason>(static_cast<uint32_t>(StopReason::kCallMismatch) + 1);

struct WindowCollectiveTable {
  uint32_t version;  // kWindowCollectivesVersion
  // Whether launch() accepts the call. Depends only on values that are equal on all ranks.
  bool (*can_launch)(int32_t ranks, const KernelCall& call);
  // Enqueues the call, as KernelFunctionTable::launch.
  int (*launch)(const TeamDescriptor& team, const WindowCollectiveCall& call, void* stream);
};
inline constexpr uint32_t kWindowCollectivesVersion = 6;

// A library without this symbol has no window collectives. Look it up after a call of kSymbol's
// function.
inline constexpr const char* kWindowCollectivesSymbol = "torchcomms_kernels_regions";
using WindowCollectiveEntry = const WindowCollectiveTable* (*)();

}  // namespace torch::comms::ctran::kernels
