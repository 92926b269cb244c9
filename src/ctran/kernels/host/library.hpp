#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/kernels/protocol/host_ring.hpp"
#include "ctran/reduction/dtype.hpp"

// The interface of the library of device kernels. nvcc builds the library apart from everything
// else; it is loaded at first use. Only the plain types of this header cross the boundary. It and
// the headers that it includes need only the standard library.
//
// A team is the ranks of one communicator whose GPUs map each other's memory. Each rank has one
// workspace on its own GPU, with the same layout on all ranks. A workspace is zeroed once at
// creation, and all peers map it. Only its first part must exist from the beginning; what is
// allocated later is filled with kLateFill (flags.hpp). The counters and flags that ranks wait for
// only grow. The host therefore writes nothing for a launch, and a captured launch may be replayed.
//
// The launches of a team run one after another on every rank, on any streams. All ranks launch
// collectives in the same order. Only ranks that have messages launch an exchange.
namespace torch::comms::ctran::kernels {

// The version of this header and of the layout of a workspace. All ranks of a team must have the
// same.
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
  // These have no KernelCall. KernelControl names them for messages, for operations on windows, and
  // for launches with call types of their own.
  kExchange,
  kSignal,
  kWaitSignal,
  kAllToAllVDynamic,
  kQuantizedReduceScatter,
};

enum class KernelAlgorithm : uint8_t {
  kAutomatic,     // chosen by the library from collective, size and ranks
  kOneShotLL,     // one hop; 4 bytes of flag beside each 4 bytes of data
  kOneShotLL128,  // one hop; lines of 128 bytes, 8 of them flag
  kTwoShotLL128,  // two hops; LL128 reduce-scatter and all-gather without a barrier between
};
inline constexpr int kAlgorithms = 4;

// Why the kernels of a team have stopped. The first kernel that stops on a rank records it. Outputs
// of collectives are then NaN if the dtype has a NaN; what an exchange has received is undefined.
enum class StopReason : uint32_t {
  kNone = 0,
  kAborted,        // by the host, through KernelControl::abort
  kTimeout,        // KernelCall::timeout_ns has passed
  kSizeMismatch,   // a message and its receive differ in size, here or at waited_for
  kInvalidCounts,  // invalid counts in the memory of waited_for, which may be this rank
  kCallMismatch,   // waited_for has called something else, in this launch or before
  kPeerLeft = 7,   // waited_for is in KernelControl::quiesced; 6 is kWindowMismatch
};

// Pinned host memory that the device maps: one for each rank of a team, zeroed at creation.
struct KernelControl {
  uint32_t abort;       // set by the host: kernels end within 1 ms, also those launched later
  uint32_t stop;        // StopReason; the device writes it last
  int32_t waited_for;   // the rank whose data was missing; -1: none
  uint32_t collective;  // Collective of the launch that stopped
  // The number of the launch that stopped on this rank: among exchanges if it is one, else among
  // collectives. 0 for an operation on a window.
  uint64_t launch;
  uint64_t timeout_ns;  // what kControlTimeout stands for; the host may change it at any time
  // Not 0: only the first part of this rank's workspace exists. The host clears it once the rest
  // exists.
  uint32_t is_partial;
  // Bit mask of ranks. All that these ranks will ever write to this rank has arrived, so a kernel
  // that waits for more stops. The host may set bits at any time.
  uint32_t quiesced;
  uint64_t reserved[3];  // zero
};
// A timeout that launches, also replays, read from KernelControl while they wait.
inline constexpr uint64_t kControlTimeout = ~uint64_t{0};

// A rank's view of its team.
struct TeamDescriptor {
  int32_t rank;
  int32_t size;                // 1, for operations on windows alone, to kMaxRanks
  void* workspace[kMaxRanks];  // by rank, as this process maps them
  KernelControl* control;      // as the device maps it
  // As KernelControl::is_partial; 1 until this rank knows that the rest of all workspaces exists.
  // Messages may use the rest if both sides know that.
  uint64_t is_partial;
  const void* reserved[3];  // null
};

// A collective. Addresses are memory of this rank's device with the natural alignment of the dtype.
// Calls are in place or out of place as in torchcomms. Counts of 0 are legal and take part.
struct KernelCall {
  Collective collective;
  KernelAlgorithm algorithm;
  Dtype dtype;      // data that is only moved may be kUInt8
  ReduceOpCode op;  // for reductions
  int32_t root;     // for rooted collectives
  int32_t blocks;   // most thread blocks, and so most SMs; 0: chosen by the library
  // Elements of the tensor for all-reduce, reduce and broadcast; else of one rank's part.
  size_t count;
  const void* input;
  void* output;  // null if this rank has none
  // The factor of kPremulSum: in device memory, of the call's dtype, read when the kernel runs.
  // Null: factor_value holds.
  const void* factor;
  double factor_value;
  uint64_t timeout_ns;  // from the start of the kernel; 0: none; or kControlTimeout
};

// One side of a message. Messages of one direction between two ranks match in the order of the
// launches, and within a launch in the order of the list. Both sides have the same size.
//
// Zero-copy: a sender may write a large message directly into the memory of its receiver, if both
// sides want that. The sender asks ahead of the data, and waits until the receive has begun. The
// receiver replies with an address or with none. Without an address, the sender sends through the
// workspace. So neither side needs to know what the other wants, and all kinds of messages may
// follow each other.
// Small messages always go through the workspace. The sender may use the address from the launch of
// the receive on, even after the receive has stopped.
struct KernelMessage {
  void* data;                        // of this rank's device; any alignment; null if bytes == 0
  size_t bytes;                      // 0 is legal and takes part
  int32_t peer;                      // another rank
  int32_t is_receive;                // 0: a send
  void* zero_copy_target = nullptr;  // of a receive: `data` as `peer` maps it; null: no zero-copy
  bool requests_zero_copy = false;   // of a send
};
inline constexpr int kMaxMessages = 96;  // of one launch

// Messages to and from any ranks, all in flight at once. Messages between two ranks in one
// direction run one after another. A send may end before its receive has begun.
struct MessageExchange {
  const KernelMessage* messages;  // host memory, read during the call
  int32_t count;                  // 1 to kMaxMessages
  int32_t blocks;       // most thread blocks for each peer and direction; 0: chosen by the library
  uint64_t timeout_ns;  // as KernelCall::timeout_ns
};

// Signal words of a window, in memory that all ranks map, zeroed at creation. The slots of the rank
// follow them.
struct WindowSignalWords {
  // Signals that have arrived, by sender. Only the sender writes its word.
  uint64_t received[kMaxRanks];
  // This rank's own counters by peer, across launches.
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
};  // the slot's value is the left operand

// One operation on a window. A rank that sees a signal or a value also sees what was put to it
// before on the same stream, by operations or copies. The operations of one rank run one after
// another, like the team's launches. Other ranks take no part in them.
struct KernelRmaOperation {
  enum class Kind : uint8_t {
    kSignal,      // adds 1 to the signals that `peer` has from this rank
    kStore,       // stores `value` to slot `slot` of `peer`
    kWaitSignal,  // waits for one more signal of `peer` than the waits before
    kWaitSlot,    // waits until `comparison` holds between slot `slot` of this rank and `value`
    kPut,         // copies `size_bytes` at `from`, of this rank, to `into`, of `peer`
  };
  Kind kind;
  KernelSlotComparison comparison;
  int32_t peer;              // any rank; for kWaitSlot this rank
  WindowSignalWords* own;    // of this rank; never null
  WindowSignalWords* there;  // of `peer`, as this process maps it; never null
  uint64_t slot, value;      // `slot` is not checked
  uint64_t timeout_ns;       // as KernelCall::timeout_ns
  // Of a put.
  const char* from;  // any alignment
  char* into;
  uint64_t size_bytes;  // at least 1
};

// An all-to-all whose sizes are in device memory. Each rank sends a part of one tensor to every
// rank, and receives a part of another tensor from every rank, itself included. The sizes are read
// when the kernel runs, so each replay of a captured launch has its own. The parts of a tensor
// follow each other, by rank. Both sides of a pair have the same size.
//
// All ranks launch it, in the order of collectives. Counts are invalid if they are negative or go
// beyond the tensor, or if the two counts of a rank's part for itself differ. They stop the launch
// on that rank before it has moved anything, and on the ranks that wait for it (kInvalidCounts).
struct AllToAllVDynamic {
  const void* input;                       // any alignment; null if it has no elements
  void* output;                            // must not overlap the input
  size_t input_elements, output_elements;  // of the whole tensors
  size_t element_bytes;                    // at least 1
  const int64_t* input_counts;             // elements by rank; device memory
  const int64_t* output_counts;
  int32_t blocks;       // as MessageExchange::blocks
  uint64_t timeout_ns;  // as KernelCall::timeout_ns
  // Zero-copy as in KernelMessage, for each part to and from another rank.
  void* zero_copy_targets[kMaxRanks] = {};  // by rank: the output as that rank maps it, or null
  bool requests_zero_copy = false;
};

// A collective: a reduce-scatter of float32 whose parts travel as bfloat16 and are added as
// float32. Each element is rounded up or down at random so that the mean is exact
// (stochastic_rounding.hpp). A rank's own part is not rounded. The same inputs and seeds give the
// same bits.
struct QuantizedReduceScatter {
  KernelAlgorithm algorithm;  // an algorithm with one hop, or kAutomatic
  int32_t blocks;             // as KernelCall::blocks
  size_t count;               // elements of a rank's part
  const float* input;         // `count` elements for each rank
  float* output;              // may be this rank's part of the input
  const uint64_t* seed;       // device memory, read when the kernel runs; ranks may differ
  bool is_average;            // otherwise the sum
  uint64_t timeout_ns;        // as KernelCall::timeout_ns
};

// The functions of the library.
struct KernelFunctionTable {
  uint32_t abi;                    // kAbi
  const char* (*architectures)();  // "sm_90"
  // Returns the bytes of a whole workspace; 0 for a number of ranks that is not supported.
  size_t (*workspace_bytes)(int32_t ranks);
  // Returns whether launch() accepts the call. Depends only on values that are equal on all ranks.
  bool (*can_launch)(int32_t ranks, const KernelCall& call);
  // Returns the algorithm of the call, and sets `*blocks` to its number of thread blocks. `blocks`
  // may be null. Returns kAutomatic if launch() does not accept the call; `*blocks` is not set
  // then.
  KernelAlgorithm (*choose_algorithm)(int32_t ranks, const KernelCall& call, int32_t* blocks);
  // Enqueues a collective, also into a capture. Never blocks or allocates. The device of the team
  // must be current.
  // Returns: 0, or the runtime's error. cudaErrorInvalidValue: the call is invalid.
  int (*launch)(const TeamDescriptor& team, const KernelCall& call, void* stream);
  // Enqueues messages, as launch().
  int (*exchange)(const TeamDescriptor& team, const MessageExchange& exchange, void* stream);
  const char* (*error_text)(int error);
  // Enqueues an operation on a window, as launch().
  int (*rma)(const TeamDescriptor& team, const KernelRmaOperation& step, void* stream);
  // Enqueue these collectives, as launch().
  int (*all_to_all_v_dynamic)(const TeamDescriptor& team, const AllToAllVDynamic& exchange,
                              void* stream);
  int (*reduce_scatter_quantized)(const TeamDescriptor& team, const QuantizedReduceScatter& call,
                                  void* stream);
  // Operate on a HostRing, as launch(). post() gives the host a command once the ring has space.
  // wait_for_command() makes the stream wait until the oldest command that was not waited for yet
  // is complete. poison_output() fills an output with NaN after a stop.
  int (*post)(const HostRingCall& call, void* stream);
  int (*wait_for_command)(const HostRingCall& call, void* stream);
  int (*poison_output)(const HostRingCall& call, void* stream);
  // Returns where the rest of a workspace begins, a multiple of 2 MB; 0: there is only a first
  // part.
  size_t (*rest_offset)(int32_t ranks);
  // Returns whether launch() needs the rest of the workspace, for a call that it accepts. Depends
  // only on values that are equal on all ranks. The rest must also exist before
  // reduce_scatter_quantized() and before window collectives that push their operands. Nothing else
  // needs it.
  bool (*needs_full_workspace)(int32_t ranks, const KernelCall& call);
};

// The main symbol of the library; window collectives have another one. The first call on a device
// loads the kernels to it, and must come before the first launch there.
// Returns: null if the kernels do not run on the current device.
inline constexpr const char* kSymbol = "torchcomms_kernels";
using KernelLibraryEntry = const KernelFunctionTable* (*)();

}  // namespace torch::comms::ctran::kernels
