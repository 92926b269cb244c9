#pragma once

#include <torchcomms/device/memory.hpp>
#include <torchcomms/device/registered_buffer.hpp>

// The data that handles for kernels point to: plain structs in device memory, which the host writes
// once. Addresses are valid on this rank's device, which maps the memory of peers.
namespace torchcomms::device {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostSignals = 2048, kMostCounters = 2048, kMostBarriers = 256;  // per window
inline constexpr int kMostBuffers = 512;                                              // per window

// Pinned host memory that the device reads and writes.
struct ControlWords {
  uint32_t abort;  // the host sets it, and waits end within 1 ms
  // The device writes the fields below: why this rank's kernels have stopped, and what they waited
  // for.
  uint32_t stop;
  int32_t waited_for;  // the rank that the kernel waited for; -1: none
  uint32_t what;
  uint64_t launch;
};

// Values of ControlWords::stop. The host code has the same numbers.
inline constexpr uint32_t kStopAborted = 1, kStopLimit = 2, kStopMismatch = 3;

// The state of a communicator: its ranks, and what a wait checks.
struct TeamState {
  int32_t rank, size;
  uint64_t limit_ns;               // timeout of one wait; 0: none
  uint64_t* stop;                  // nonzero once the kernels of this rank must stop
  uint64_t* looked_ns;             // time of the last read of ControlWords::abort
  uint64_t* reported[kMostRanks];  // by rank: where peers report why that rank must stop
  ControlWords* control;
  uint32_t what;  // value for ControlWords::what when a wait of this communicator stops
};

// A signal: the value that all ranks have produced together, and the value of each rank. Peers
// write these words.
struct alignas(128) SignalWords {
  uint64_t all;
  uint64_t from[kMostRanks];
};

// A barrier: the newest round that each rank has reached, which that rank writes, and the round of
// this rank.
struct alignas(128) BarrierWords {
  uint64_t came[kMostRanks];
  uint64_t round;
};

// The control words of a rank's window memory, all zero at first. Peers write to the signals and
// barriers.
struct WindowArea {
  SignalWords signals[kMostSignals];
  BarrierWords barriers[kMostBarriers];
  uint64_t counters[kMostCounters];
  RegisteredBuffer buffers[kMostBuffers];
};

// The window memory of one rank.
struct WindowPart {
  char* base;
  uint64_t size_bytes;
  WindowArea* area;
};

// The state of a window as kernels see it.
struct WindowState {
  TeamState team;
  int32_t signals, counters, barriers;  // numbers in use
  WindowPart parts[kMostRanks];         // by rank
};

// The transport moves messages between pairs of ranks through rings in the memory of the receiver.
inline constexpr int kTransportSignals = 64, kTransportBarriers = 16;
inline constexpr uint64_t kRingBytes = uint64_t{512} << 10;
inline constexpr uint64_t kPieceBytes = uint64_t{64}
                                        << 10;  // default piece size, if the call gives none

// The control words that a rank keeps for each peer. The counts only grow.
struct alignas(128) PairWords {
  // The peer writes the words below.
  uint64_t came;   // bytes that the peer has put into the ring of this rank
  uint64_t taken;  // bytes that the peer has consumed of what this rank sent
  uint64_t barriers[kTransportBarriers];
  uint64_t signals[kTransportSignals];
  // Only this rank uses the words below.
  alignas(128) uint64_t sent;
  uint64_t received;
  uint64_t sends, receives;  // numbers of messages
  uint64_t rounds[kTransportBarriers];
};

// The transport memory of one rank.
struct TransportArea {
  PairWords posts[kMostRanks];
  // Rings of kRingBytes follow, ordered by sending rank.
  TC_ANYWHERE static uint64_t bytes(int ranks) {
    return sizeof(TransportArea) + static_cast<uint64_t>(ranks) * kRingBytes;
  }
};

// The state of a transport as kernels see it.
struct TransportState {
  TeamState team;
  TransportArea* areas[kMostRanks];  // by rank
};

}  // namespace torchcomms::device
