#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/kernels/protocol/host_ring.hpp"
#include "ctran/reduction/dtype.hpp"

// What the library of device kernels offers. It is built by nvcc apart from everything else, and
// loaded at first use; only the plain types of this header cross the border. std only.
//
// A team is the ranks of one communicator whose GPUs reach each other's memory. Each rank has one
// workspace on its own GPU, laid out alike on all ranks, zeroed once when it is made, and mapped by
// all others. Only a first part of it has to be there from the beginning; what comes later is
// filled with kLateFill (flags.hpp). Epochs and flags in it only grow, so nothing is written by the
// host for a launch, and a captured launch may be replayed.
//
// The launches of a team are one after the other on every rank, on whatever streams they are.
// Collectives are in the same order on all ranks; an exchange of messages is launched by those
// ranks alone that have any.
namespace torch::comms::ctran::kernels {

// Of this header, and of how a workspace is laid out, in which all ranks of a team agree.
inline constexpr uint32_t kAbi = 14;
inline constexpr int kMaxRanks = 8;

enum class Collective : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kBarrier,
  // No KernelCall, but what KernelControl says of messages, of what is done beside windows, and of
  // launches with calls of their own.
  kExchange,
  kSignal,
  kWaitSignal,
  kAllToAllVDynamic,
  kQuantizedReduceScatter,
};

enum class KernelAlgorithm : uint8_t {
  kAutomatic,     // what the library thinks best, by collective, size and ranks
  kOneShotLL,     // 4 bytes of data beside each 4 of flag; one hop
  kOneShotLL128,  // lines of 128 bytes, 8 of them flag; one hop
  kTwoShotLL128,  // reduce-scatter and all-gather of such lines, without a barrier between; two
                  // hops
};
inline constexpr int kAlgorithms = 4;

// Why kernels of a team have stopped. The first that stops says so; outputs of collectives are NaN
// then where they are of floats, what an exchange has received is undefined.
enum class StopReason : uint32_t {
  kNone = 0,
  kAborted,        // by the host, through KernelControl::abort
  kTimeout,        // Call::limit_ns has passed
  kSizeMismatch,   // a message is longer or shorter than its receive, here or at waited_for
  kInvalidCounts,  // what the memory of waited_for, which may be this rank, has as counts is
                   // impossible
  kCallMismatch,   // waited_for has called something else as this launch, or as one before
  kPeerLeft =
      7,  // waited_for writes nothing any more: see KernelControl::gone. 6 is in regions.hpp
};

// Pinned host memory which the device sees, one a rank and team, zeroed when it is made.
struct KernelControl {
  uint32_t abort;       // the host sets it: kernels leave within 1 ms, also those launched later
  uint32_t stop;        // Stop; written last, by the device
  int32_t waited_for;   // the rank whose data had not come; -1: nobody's
  uint32_t collective;  // Collective, of the launch that stopped
  // How many launches the team had seen on this rank, this one included: of exchanges, if it is
  // one, else of collectives.
  uint64_t launch;
  uint64_t timeout_ns;  // what kControlTimeout stands for; the host sets it at any time
  // Not zero: of this rank's workspace there is the first part alone. The host makes it zero once
  // the rest is there.
  uint32_t is_partial;
  // Ranks, a bit each: all that they will ever write to this one has arrived, so that who waits for
  // more waits in vain, and stops. The host sets bits at any time.
  uint32_t quiesced;
  uint64_t reserved[3];  // zero
};
// A limit that launches look up in KernelControl while they wait, replays as well.
inline constexpr uint64_t kControlTimeout = ~uint64_t{0};

struct TeamDescriptor {
  int32_t rank;
  int32_t size;                // 1, of steps beside windows, to kMaxRanks
  void* workspace[kMaxRanks];  // by rank, as this process maps them
  KernelControl* control;      // the device's address of it
  // As of KernelControl: 1 until this rank knows that the rest of all workspaces is there. Messages
  // of which both sides know it may use that.
  uint64_t is_partial;
  const void* reserved[3];  // null
};

// Memory: addresses of this rank's device with the natural alignment of the dtype, in place or
// apart as torchcomms has it. Counts of zero are legal and take part.
struct KernelCall {
  Collective collective;
  KernelAlgorithm algorithm;
  Dtype dtype;      // bytes that are only moved may be called kUInt8
  ReduceOpCode op;  // of reductions
  int32_t root;     // of rooted collectives
  int32_t blocks;   // thread blocks, that is at most so many SMs; 0: as the library thinks best
  // All-reduce, reduce, broadcast: elements of the tensor. Others: of one rank's part.
  size_t count;
  const void* input;
  void* output;  // null where this rank has none
  // kPremulSum: in device memory, of the call's dtype, read when the kernel runs; else null, then
  // factor_value holds.
  const void* factor;
  double factor_value;
  uint64_t timeout_ns;  // from when the kernel begins; 0: none; or kControlTimeout
};

// One side of a message. Between two ranks, the messages of one direction match in the order of the
// launches, and within a launch in the order of the list. Both sides have the same size.
//
// A message may be written by its sender straight to where it is wanted, where both sides like it:
// a sender that asks says so ahead of the data, and waits until the receive has begun, which
// answers with its place or with none. With one the sender writes there, with none it sends as it
// always does. So neither side has to know what the other likes, and all kinds of messages may
// follow each other. Small ones are sent as always. After a stop of the receive its sender may
// still write to the place, which it has from the launch of the receive on.
struct KernelMessage {
  void* data;          // of this rank's device; any alignment; null where bytes == 0
  size_t bytes;        // 0 is legal, and takes part
  int32_t peer;        // not this rank
  int32_t is_receive;  // 0: a send
  void* zero_copy_target =
      nullptr;  // of a receive: `data` as `peer` maps it; null: it is not to write there
  bool requests_zero_copy = false;  // of a send
};
inline constexpr int kMaxMessages = 96;  // of one launch

// Messages to and from any ranks, all of them under way at once; those between two ranks in one
// direction are one after the other. A send may be over before its receive has begun.
struct MessageExchange {
  const KernelMessage* messages;  // host memory, read within the call
  int32_t count;                  // 1 to kMaxMessages
  int32_t blocks;       // thread blocks for each peer and direction; 0: as the library thinks best
  uint64_t timeout_ns;  // as KernelCall's
};

// Beside a window: words of each rank in memory that all ranks map, zeroed when it is made, with as
// many slots behind them as the rank has.
struct WindowSignalWords {
  // How many signals have come, by the rank that sends them, which alone writes it.
  uint64_t received[kMaxRanks];
  // This rank's own, from launch to launch, by peer.
  alignas(128) uint64_t sent[kMaxRanks];
  uint64_t awaited[kMaxRanks];

  static constexpr size_t bytes(uint64_t slots) {
    return sizeof(WindowSignalWords) + slots * sizeof(uint64_t);
  }
};
static_assert(sizeof(WindowSignalWords) == 256);

enum class KernelSlotComparison : uint8_t {
  kEqual,
  kAtLeast,
  kAtMost
};  // the slot's value on the left

// One step beside a window. What was put to a rank, by steps or copies before on the same stream,
// is there when it sees the signal or the value. Launches of one rank are one after the other, as
// the team's are; they have no part in those of others.
struct KernelRmaOperation {
  enum class Kind : uint8_t {
    kSignal,      // one more to what came to `peer` from this rank
    kStore,       // `value` to slot `slot` of `peer`
    kWaitSignal,  // for one more signal of `peer` than was waited for before
    kWaitSlot,    // until `comparison` holds between slot `slot` of this rank and `value`
    kPut,         // `size_bytes` at `from`, of this rank, to `into`, of `peer`
  };
  Kind kind;
  KernelSlotComparison comparison;
  int32_t peer;              // any rank; of kWaitSlot this one
  WindowSignalWords* own;    // of this rank
  WindowSignalWords* there;  // of `peer`, as this process maps it
  uint64_t slot, value;
  uint64_t timeout_ns;  // as KernelCall's
  const char* from;     // any alignment
  char* into;
  uint64_t size_bytes;
};

// A part of one tensor to each rank and a part of another one from each, this rank included, of
// sizes that device memory alone knows: they are read when the kernel runs, so that each replay of
// a captured launch has its own. The parts of a tensor follow each other, by rank. Both sides of
// each pair have the same size.
//
// All ranks launch it, in the order of collectives. Counts that are negative, or go beyond the
// tensor, or are not one for what a rank has for itself, stop the launch there (kInvalidCounts)
// before it has moved anything, and on the ranks that wait for it.
struct AllToAllVDynamic {
  const void* input;                       // any alignment; null where it has no elements
  void* output;                            // apart from it
  size_t input_elements, output_elements;  // that exist
  size_t element_bytes;                    // at least 1
  const int64_t* input_counts;             // of elements, by rank; device memory
  const int64_t* output_counts;
  int32_t blocks;       // as MessageExchange's
  uint64_t timeout_ns;  // as KernelCall's
  // As of messages, of each part to and from another rank.
  void* zero_copy_targets[kMaxRanks] = {};  // by rank: the output as that maps it, or null
  bool requests_zero_copy = false;
};

// A reduce-scatter of float32 whose parts travel as bfloat16, each element rounded up or down by
// chance so that it is right on average (rounding.hpp), and are added as float32; a rank's own part
// is not rounded. The same inputs and seeds give the same bits. A collective.
struct QuantizedReduceScatter {
  KernelAlgorithm algorithm;  // of those with one hop; kAutomatic
  int32_t blocks;             // as KernelCall's
  size_t count;               // of a rank's part
  const float* input;         // `count` for each rank
  float* output;              // may be this rank's part of the input
  const uint64_t* seed;  // device memory, read when the kernel runs; each rank may have its own
  bool is_average;       // else sums
  uint64_t timeout_ns;   // as KernelCall's
};

struct KernelFunctionTable {
  uint32_t abi;                    // kAbi
  const char* (*architectures)();  // "sm_90"
  // Of all of a workspace.
  size_t (*workspace_bytes)(int32_t ranks);
  // Whether run_loop() takes it; what it says depends only on what is alike on all ranks.
  bool (*can_launch)(int32_t ranks, const KernelCall& call);
  // What kAutomatic is for it, and how many thread blocks.
  KernelAlgorithm (*choose_algorithm)(int32_t ranks, const KernelCall& call, int32_t* blocks);
  // Enqueues it; never blocks, never allocates; may be captured. 0, or the runtime's error.
  int (*launch)(const TeamDescriptor& team, const KernelCall& call, void* stream);
  // The same of messages.
  int (*exchange)(const TeamDescriptor& team, const MessageExchange& exchange, void* stream);
  const char* (*error_text)(int error);
  // As exchange().
  int (*rma)(const TeamDescriptor& team, const KernelRmaOperation& step, void* stream);
  // As run_loop().
  int (*all_to_all_v_dynamic)(const TeamDescriptor& team, const AllToAllVDynamic& exchange,
                              void* stream);
  int (*reduce_scatter_quantized)(const TeamDescriptor& team, const QuantizedReduceScatter& call,
                                  void* stream);
  // Of a ring of commands, as run_loop(): gives the host one, once there is room for it; waits
  // until the oldest that was not awaited yet is done; seals an output.
  int (*post)(const HostRingCall& call, void* stream);
  int (*wait_for_command)(const HostRingCall& call, void* stream);
  int (*poison_output)(const HostRingCall& call, void* stream);
  // Where the rest of a workspace begins: at a multiple of 2 MB; 0: all of it is the first part.
  size_t (*rest_offset)(int32_t ranks);
  // Whether run_loop() of it needs the rest. Of a call that it takes; depends only on what is alike
  // on all ranks. reduce_scatter_quantized() always does, and launches on regions that push their
  // operands; nothing else.
  bool (*needs_full_workspace)(int32_t ranks, const KernelCall& call);
};

// The one symbol of the library. The first call loads the kernels to the current device; null where
// they do not run on it.
inline constexpr const char* kSymbol = "torchcomms_kernels";
using KernelLibraryEntry = const KernelFunctionTable* (*)();

}  // namespace torch::comms::ctran::kernels
