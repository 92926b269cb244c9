#pragma once

#include <cstddef>
#include <cstdint>

// A ring of commands that a device gives its host, for what a stream has to have done by the host
// in its midst: no callback of the runtime, so that it also goes into a graph and runs with each of
// its replays. std only.
//
// A stream posts commands and awaits them later, in the order in which it posted them. At the end
// of an operation it seals its output: nobody takes for a result what a stop has left there. The
// launches of a ring are one after the other, on whatever streams they are. Numbers only grow, so
// that nothing is written by the host for a launch.
namespace torch::comms::ctran::kernels {

struct KernelControl;

// More commands than may be under way at once.
inline constexpr uint64_t kHostRingSlots = 32;
inline constexpr size_t kCommandWords = 7;

struct HostCommand {
  uint64_t number;  // of the command, from 1 on; written last, by the device
  uint64_t words[kCommandWords];
};

// Pinned host memory which the device sees at the same address, zeroed when it is made.
struct HostRing {
  // The device's counters.
  uint64_t posted, awaited;
  uint64_t unused[14];
  // The host's: the number of the newest command that is done, as are all before it.
  uint64_t done;
  uint64_t unused_either[15];
  HostCommand commands[kHostRingSlots];
};
static_assert(offsetof(HostRing, done) == 128 && offsetof(HostRing, commands) == 256);

// What its kernels need to know. After a stop (KernelControl, library.hpp) of the ring or of the
// team beside it they leave at once; Control::launch is the number of the command then.
struct HostRingCall {
  HostRing* ring;
  KernelControl* control;
  const KernelControl* team_control;  // of the team whose data go through the ring; null: none
  uint64_t timeout_ns;                // from when the kernel begins; 0: none
  uint64_t words[kCommandWords];      // of a post; the same in each replay
  // Of a seal: memory that after a stop is filled with the 8 bytes of `nan`, unless that is 0.
  void* output;
  size_t output_bytes;
  uint64_t nan;
};

}  // namespace torch::comms::ctran::kernels
