#pragma once

#include <cstddef>
#include <cstdint>

// A ring of commands that a device posts to its host. A stream uses it where the host has to do
// something in the middle of an operation. It needs no callback of the runtime, so it can be
// captured, and runs in each replay of a graph. Includes only the standard library.
//
// A stream posts commands and waits for them later, in the order in which it posted them. At the
// end of an operation it poisons its output if there was a stop, so that no caller takes the output
// for a result. Launches of a ring run one after another, on any streams. Numbers only grow, so the
// host writes nothing for a launch.
namespace torch::comms::ctran::kernels {

struct KernelControl;

// More than the commands that may be in flight at once.
inline constexpr uint64_t kHostRingSlots = 32;
inline constexpr size_t kCommandWords = 7;

struct HostCommand {
  uint64_t number;  // of the command, from 1 on; the device writes it last
  uint64_t words[kCommandWords];
};

// Pinned host memory that the device maps at the same address, zeroed at creation.
struct HostRing {
  // Counters that the device writes.
  uint64_t posted, awaited;
  uint64_t unused[14];
  // Counter that the host writes: the newest command that is complete. All earlier commands are
  // complete as well.
  uint64_t done;
  uint64_t unused_either[15];
  HostCommand commands[kHostRingSlots];
};
static_assert(offsetof(HostRing, done) == 128 && offsetof(HostRing, commands) == 256);

// Parameters of the ring's kernels. After a stop (KernelControl, library.hpp) of the ring or of its
// team the kernels return at once. KernelControl::launch is then the number of the command.
struct HostRingCall {
  HostRing* ring;
  KernelControl* control;
  const KernelControl* team_control;  // of the team whose data goes through the ring; null: none
  uint64_t timeout_ns;                // from the start of the kernel; 0: none
  uint64_t words[kCommandWords];      // of a post; the same in each replay
  // For poison_output(): after a stop this memory is filled with the 8 bytes of `nan`, unless that
  // is 0.
  void* output;
  size_t output_bytes;
  uint64_t nan;
};

}  // namespace torch::comms::ctran::kernels
