#pragma once

#include <cstdint>

#include "ctran/kernels/host/library.hpp"

// The words that ranks wait for: each has the number of a launch, and a print of what the rank that
// wrote it has called, as that launch and all before it. So data of a rank that called something
// else are never taken for those that are awaited, and a rank that waits can tell one that is late
// from one that disagrees, which are the same to a flag of numbers alone.
//
// The print is spread over the words of a wire that has little room in each: what one warp takes at
// once has all of it. Numbers come round where they are cut; what any launch may have left is
// cleared before.
namespace torch::comms::ctran::kernels {

inline constexpr int kFingerprintBits = 48;

// The print of all that was called so far, when a call follows what was `before`. See print.hpp
// for that of the call.
constexpr uint64_t chain_fingerprint(uint64_t before, uint64_t call) {
  return (before ^ call) * 0x9e3779b97f4a7c15 >> (64 - kFingerprintBits);
}

// Whether a counter that only grows has come to `wanted`, also across its end.
constexpr bool has_reached(uint64_t counter, uint64_t wanted) {
  return static_cast<int64_t>(counter - wanted) >= 0;
}

// That a rank has begun a launch. Ranks are never further apart than two of them.
inline constexpr int kArrivalBits = 64 - kFingerprintBits;
constexpr uint64_t arrival_word(uint64_t launch, uint64_t print) {
  return print << kArrivalBits | (launch & ((uint64_t{1} << kArrivalBits) - 1));
}
constexpr uint64_t fingerprint_in(uint64_t begun) { return begun >> kArrivalBits; }
// Whether its rank has begun `launch`, or one after it.
constexpr bool has_arrived(uint64_t begun, uint64_t launch) {
  return static_cast<int16_t>(static_cast<uint16_t>(begun - launch)) >= 0;
}
// Whether two ranks have called something else as the same launch.
constexpr bool has_call_mismatch(uint64_t begun, uint64_t other) {
  return begun != other && static_cast<uint16_t>(begun) == static_cast<uint16_t>(other);
}

// Counters of 64 bits that only grow: 44 of the launch (1.6 years of launches of 3 us), 20 of the
// step within it.
inline constexpr int kStepBits = 20;
inline constexpr uint64_t kMostSteps = uint64_t{1} << kStepBits;
constexpr uint64_t tag_of(uint64_t launch, uint64_t step) { return launch << kStepBits | step; }

// A flag of lines: 20 bits of the step, 28 of the launch, 16 of the print, which has three such
// parts. `part`: the line, of those that a warp moves at once.
inline constexpr int kLL128LaunchBits = 28, kLL128Parts = 3;
constexpr uint64_t ll128_flag(uint64_t launch, uint64_t print, int part) {
  constexpr uint64_t kLaunches = (uint64_t{1} << kLL128LaunchBits) - 1;
  return print >> part % kLL128Parts * 16 << (kStepBits + kLL128LaunchBits) | (launch & kLaunches)
                                                                                  << kStepBits;
}
constexpr uint64_t launch_in(uint64_t line_flag) {
  return line_flag >> kStepBits & ((uint64_t{1} << kLL128LaunchBits) - 1);
}

// A flag of LL: 20 bits of the launch, 12 of the print, of which a vector's four have all.
inline constexpr int kLLLaunchBits = 20, kLLParts = 4;
constexpr uint32_t ll_flag(uint64_t launch, uint64_t print, int part) {
  return static_cast<uint32_t>(print >> part * 12) << kLLLaunchBits |
         (static_cast<uint32_t>(launch) & ((uint32_t{1} << kLLLaunchBits) - 1));
}

// Before so many bits of the launch come round, twice in that time, all slots of both generations
// are given the flag of a launch that is just past: whether a launch clears the generation of the
// next one, before it lets others begin to write there.
constexpr bool clears_next_generation(uint64_t launch, int launch_bits) {
  return (launch & ((uint64_t{1} << (launch_bits - 1)) - 1)) <= 1;
}
constexpr uint64_t past_launch(uint64_t launch) { return launch - 3; }

// What memory for lines is filled with that comes when there have been launches, which may be any
// number: so a line has the flag of the last step that a launch can have, whose slot it had
// written before. (That of a launch whose number comes round to 0 would be all zeros, in a slot
// that nobody has written.)
inline constexpr unsigned char kLateFill = 0xff;

}  // namespace torch::comms::ctran::kernels
