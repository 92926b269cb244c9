#pragma once

#include <cstdint>

#include "ctran/kernels/host/library.hpp"

// Formats of the words that ranks wait for. Each word has the number of a launch and a fingerprint
// of all calls that its writer made up to that launch. Data of a rank that called something else
// therefore never match. A waiting rank can also tell a late rank from one that disagrees.
//
// A packet protocol with few flag bits spreads the fingerprint over several words; what one warp
// reads at once has all of it. Truncated launch numbers wrap around; slots that an old launch may
// have left are cleared before.
namespace torch::comms::ctran::kernels {

inline constexpr int kFingerprintBits = 48;

// Returns the fingerprint of all calls so far. `before`: the fingerprint of the earlier calls;
// `call`: the fingerprint of the new call, see call_fingerprint.hpp.
constexpr uint64_t chain_fingerprint(uint64_t before, uint64_t call) {
  return (before ^ call) * 0x9e3779b97f4a7c15 >> (64 - kFingerprintBits);
}

// Whether a counter that only grows has reached `wanted`, also across a wrap.
constexpr bool has_reached(uint64_t counter, uint64_t wanted) {
  return static_cast<int64_t>(counter - wanted) >= 0;
}

// The word by which a rank announces that it has begun a launch. Ranks are never more than two
// launches apart.
inline constexpr int kArrivalBits = 64 - kFingerprintBits;
constexpr uint64_t arrival_word(uint64_t launch, uint64_t fingerprint) {
  return fingerprint << kArrivalBits | (launch & ((uint64_t{1} << kArrivalBits) - 1));
}
constexpr uint64_t fingerprint_in(uint64_t begun) { return begun >> kArrivalBits; }
// Whether the writer of `begun` has begun `launch` or a later one.
constexpr bool has_arrived(uint64_t begun, uint64_t launch) {
  return static_cast<int16_t>(static_cast<uint16_t>(begun - launch)) >= 0;
}
// Whether two ranks have called different operations as the same launch.
constexpr bool has_call_mismatch(uint64_t begun, uint64_t other) {
  return begun != other && static_cast<uint16_t>(begun) == static_cast<uint16_t>(other);
}

// 64-bit counters that only grow: 44 bits of the launch (1.6 years of launches of 3 us), 20 bits of
// the step within it.
inline constexpr int kStepBits = 20;
inline constexpr uint64_t kMostSteps = uint64_t{1} << kStepBits;
constexpr uint64_t tag_of(uint64_t launch, uint64_t step) { return launch << kStepBits | step; }

// Returns the LL128 flag of step 0: 20 bits of the step, 28 bits of the launch, 16 bits of the
// fingerprint, which has three such parts. `part`: index of the 128-byte line among those that a
// warp moves at once.
inline constexpr int kLL128LaunchBits = 28, kLL128Parts = 3;
constexpr uint64_t ll128_flag(uint64_t launch, uint64_t fingerprint, int part) {
  constexpr uint64_t kLaunches = (uint64_t{1} << kLL128LaunchBits) - 1;
  return fingerprint >> part % kLL128Parts * 16 << (kStepBits + kLL128LaunchBits) |
         (launch & kLaunches) << kStepBits;
}
constexpr uint64_t launch_in(uint64_t line_flag) {
  return line_flag >> kStepBits & ((uint64_t{1} << kLL128LaunchBits) - 1);
}

// Returns an LL flag: 20 bits of the launch and 12 bits of the fingerprint. The four flags of a
// vector have the whole fingerprint.
inline constexpr int kLLLaunchBits = 20, kLLParts = 4;
constexpr uint32_t ll_flag(uint64_t launch, uint64_t fingerprint, int part) {
  return static_cast<uint32_t>(fingerprint >> part * 12) << kLLLaunchBits |
         (static_cast<uint32_t>(launch) & ((uint32_t{1} << kLLLaunchBits) - 1));
}

// Whether a launch clears the slots of the next generation before peers may write there. This
// happens twice in a period of `launch_bits` bits, for both generations. Cleared slots get the flag
// of past_launch(), before an old flag could match again.
constexpr bool clears_next_generation(uint64_t launch, int launch_bits) {
  return (launch & ((uint64_t{1} << (launch_bits - 1)) - 1)) <= 1;
}
constexpr uint64_t past_launch(uint64_t launch) { return launch - 3; }

// Fill of LL128 memory that is allocated when there have been any number of launches. A line then
// has the flag of the last step that a launch can have, and a launch has written that slot in an
// earlier step.
// Zeros would be the flag of a launch whose number wraps to 0, in a slot that no rank has written.
inline constexpr unsigned char kLateFill = 0xff;

}  // namespace torch::comms::ctran::kernels
