#pragma once

#include <torchcomms/device/memory.hpp>
#include <torchcomms/device/registered_buffer.hpp>

// What handles for kernels point to: plain data in device memory, which the host writes once.
// Addresses are valid on this rank's device; what others have is mapped there.
namespace torchcomms::device {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostSignals = 2048, kMostCounters = 2048, kMostBarriers = 256;  // of a window
inline constexpr int kMostBuffers = 512;                                              // the same

// Pinned host memory which the device sees.
struct ControlWords {
  uint32_t abort;  // the host sets it: waits end within 1 ms
  // Written by the device: why this rank's kernels have stopped, and what was waited for.
  uint32_t stop;
  int32_t waited_for;  // a rank; -1: nobody
  uint32_t what;
  uint64_t launch;
};

// Why. The host knows the same numbers.
inline constexpr uint32_t kStopAborted = 1, kStopLimit = 2, kStopMismatch = 3;

// Of a communicator: who is in it, and what its waits watch.
struct TeamState {
  int32_t rank, size;
  uint64_t limit_ns;               // of one wait; 0: none
  uint64_t* stop;                  // this rank's: not 0 once its kernels have to stop
  uint64_t* looked_ns;             // when someone last looked at ControlWords::abort
  uint64_t* reported[kMostRanks];  // by rank: what others tell it why it has to stop
  ControlWords* control;
  uint32_t what;  // what a wait is called there
};

// A signal: what all have made of it, and what each rank has. Others write them.
struct alignas(128) SignalWords {
  uint64_t all;
  uint64_t from[kMostRanks];
};

// A barrier: the newest round that each rank has come to, which that rank writes, and this rank's.
struct alignas(128) BarrierWords {
  uint64_t came[kMostRanks];
  uint64_t round;
};

// Beside a rank's part of a window, all of it zero at first; others write to the first two.
struct WindowArea {
  SignalWords signals[kMostSignals];
  BarrierWords barriers[kMostBarriers];
  uint64_t counters[kMostCounters];
  RegisteredBuffer buffers[kMostBuffers];
};

struct WindowPart {
  char* base;
  uint64_t size_bytes;
  WindowArea* area;
};

struct WindowState {
  TeamState team;
  int32_t signals, counters, barriers;  // how many there are
  WindowPart parts[kMostRanks];         // by rank
};

// Of a transport: messages between pairs of ranks, through rings in the receiver's memory.
inline constexpr int kTransportSignals = 64, kTransportBarriers = 16;
inline constexpr uint64_t kRingBytes = uint64_t{512} << 10;
inline constexpr uint64_t kPieceBytes = uint64_t{64}
                                        << 10;  // of a ring, where nobody asks for less

// What a rank has for each rank. Counts only grow.
struct alignas(128) PairWords {
  // Written by that one.
  uint64_t came;   // bytes that it has sent into the ring here
  uint64_t taken;  // bytes of what this rank sent to it that it has taken
  uint64_t barriers[kTransportBarriers];
  uint64_t signals[kTransportSignals];
  // This rank's own.
  alignas(128) uint64_t sent;
  uint64_t received;
  uint64_t sends, receives;  // messages
  uint64_t rounds[kTransportBarriers];
};

struct TransportArea {
  PairWords posts[kMostRanks];
  // Rings of kRingBytes follow, by the rank that sends.
  TC_ANYWHERE static uint64_t bytes(int ranks) {
    return sizeof(TransportArea) + static_cast<uint64_t>(ranks) * kRingBytes;
  }
};

struct TransportState {
  TeamState team;
  TransportArea* areas[kMostRanks];  // by rank
};

}  // namespace torchcomms::device
