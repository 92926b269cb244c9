#pragma once

#include <torchcomms/device/handle.hpp>
#include <torchcomms/device/scope.hpp>

// How kernels wait for other ranks: until it is so, or the communicator is aborted, or ends, or the
// limit of the wait has passed, which ends the communicator.
namespace torchcomms::device {

// What calls return: 0, or why not. Nothing was written where it is negative, but by what waits.
enum Result : int {
  kDone = 0,
  kInvalid = -1,      // a rank, signal, counter or barrier that there is not
  kOutOfBounds = -2,  // beyond the window or the source
  kStopped = -3,      // the communicator was aborted, or has failed
  kTimedOut = -4,     // longer than the communicator's timeout
  kMismatched = -5,   // the two sides of a message have different sizes
};

enum class SignalOp { SET, ADD };
enum class CmpOp { EQ, NE, LT, LE, GT, GE };

// The signal's value on the left.
TC_ANYWHERE bool compares(CmpOp op, uint64_t seen, uint64_t value) {
  switch (op) {
    case CmpOp::EQ:
      return seen == value;
    case CmpOp::NE:
      return seen != value;
    case CmpOp::LT:
      return seen < value;
    case CmpOp::LE:
      return seen <= value;
    case CmpOp::GT:
      return seen > value;
    case CmpOp::GE:
      return seen >= value;
  }
  return false;
}

// Whether a count that only grows has come to `wanted`, also across its end.
TC_ANYWHERE bool has_come(uint64_t count, uint64_t wanted) {
  return static_cast<long long>(count - wanted) >= 0;
}

// Whether `bytes` from `offset` on are within `room`.
TC_ANYWHERE bool is_within(uint64_t offset, uint64_t bytes, uint64_t room) {
  return bytes <= room && offset <= room - bytes;
}

TC_ANYWHERE Result result_of(uint64_t stop) {
  return stop == 0               ? kDone
         : stop == kStopLimit    ? kTimedOut
         : stop == kStopMismatch ? kMismatched
                                 : kStopped;
}

// This rank's kernels have to stop; the first that finds so says why. For one thread.
TC_DEVICE void stop(const TeamState& team, uint32_t why, int waited_for) {
  if (!exchange_if(team.stop, 0, why)) return;
  team.control->waited_for = waited_for;
  team.control->what = team.what;
  team.control->launch = 0;
  fence_system();
  store_fenced(&team.control->stop, why);
}

// Tells `peer` that it has to stop as well. For one thread.
TC_DEVICE void report(const TeamState& team, uint32_t why, int peer) {
  fence_system();
  store_fenced(team.reported[peer],
               uint64_t{why} << 32 | static_cast<uint64_t>(static_cast<uint32_t>(team.rank + 1)));
}

// Whether they have to. For one thread, and seldom: it is slow. `waited_for`: the rank that this
// one cannot go on without; -1: any.
TC_DEVICE bool must_stop(const TeamState& team, uint64_t since_ns, int waited_for) {
  constexpr uint64_t kLookEvery_ns = 50000;  // the host's memory is far
  if (load_relaxed(team.stop) != 0) return true;
  const uint64_t now = now_ns();
  if (const uint64_t report = load_relaxed(team.reported[team.rank]); report != 0) {
    stop(team, static_cast<uint32_t>(report >> 32), static_cast<int>(report & 0xff) - 1);
    return true;
  }
  if (team.limit_ns != 0 && now - since_ns > team.limit_ns) {
    stop(team, kStopLimit, waited_for);
    return true;
  }
  const uint64_t last = load_relaxed(team.looked_ns);
  if (now - last < kLookEvery_ns || !exchange_if(team.looked_ns, last, now)) return false;
  if (load_relaxed(&team.control->abort) == 0) return false;
  stop(team, kStopAborted, waited_for);
  return true;
}

// For all threads of a group, each of which may have a condition of its own: until all of them
// hold. A condition acquires what it sees.
template <class Met>
TC_DEVICE Result wait_until(const TeamState& team, const Group& group, int waited_for,
                            const Met& met) {
  constexpr uint32_t kLooks = 32;
  uint64_t since_ns = 0;
  bool stopped = false;
  for (uint32_t looks = 1; !stopped && !met(); ++looks) {
    pause();
    if (looks % kLooks != 0) continue;
    if (since_ns == 0) since_ns = now_ns();
    stopped = must_stop(team, since_ns, waited_for);
  }
  if (!group.any(stopped)) return kDone;
  return result_of(load_relaxed(team.stop));
}

}  // namespace torchcomms::device
