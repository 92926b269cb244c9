#pragma once

#include <torchcomms/device/handle.hpp>
#include <torchcomms/device/scope.hpp>

// How kernels wait for peers: until the condition holds, the communicator is aborted or ends, or
// the timeout of the wait passes, which ends the communicator.
namespace torchcomms::device {

// The result of a call: 0, or the reason of a failure. After a negative result nothing was written,
// except by calls that wait.
enum Result : int {
  kDone = 0,
  kInvalid = -1,      // the rank, signal, counter or barrier does not exist
  kOutOfBounds = -2,  // beyond the window or the source
  kStopped = -3,      // the communicator was aborted, or has failed
  kTimedOut = -4,     // longer than the communicator's timeout
  kMismatched = -5,   // the two sides of a message have different sizes
};

// Whether a signal is set to a value or increased by it.
enum class SignalOp { SET, ADD };
enum class CmpOp { EQ, NE, LT, LE, GT, GE };

// Compares a signal with a value; the signal is on the left.
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

// Returns: whether a growing count has reached `wanted`, also after it has wrapped around.
TC_ANYWHERE bool has_come(uint64_t count, uint64_t wanted) {
  return static_cast<long long>(count - wanted) >= 0;
}

// Returns: whether `bytes` from `offset` on fit within `room`.
TC_ANYWHERE bool is_within(uint64_t offset, uint64_t bytes, uint64_t room) {
  return bytes <= room && offset <= room - bytes;
}

// Returns: the result for a value of ControlWords::stop.
TC_ANYWHERE Result result_of(uint64_t stop) {
  return stop == 0               ? kDone
         : stop == kStopLimit    ? kTimedOut
         : stop == kStopMismatch ? kMismatched
                                 : kStopped;
}

// Stops the kernels of this rank; the first caller records the reason.
// Threads: one thread of the group calls it.
TC_DEVICE void stop(const TeamState& team, uint32_t why, int waited_for) {
  if (!exchange_if(team.stop, 0, why)) return;
  team.control->waited_for = waited_for;
  team.control->what = team.what;
  team.control->launch = 0;
  fence_system();
  store_fenced(&team.control->stop, why);
}

// Reports to `peer` that it must stop, too.
// Threads: one thread of the group calls it.
TC_DEVICE void report(const TeamState& team, uint32_t why, int peer) {
  fence_system();
  store_fenced(team.reported[peer],
               uint64_t{why} << 32 | static_cast<uint64_t>(static_cast<uint32_t>(team.rank + 1)));
}

// Returns: whether the kernels of this rank must stop. The call is slow, so waits make it seldom.
// `waited_for`: the rank that this one waits for; -1: any.
// Threads: one thread of the group calls it.
TC_DEVICE bool must_stop(const TeamState& team, uint64_t since_ns, int waited_for) {
  constexpr uint64_t kLookEvery_ns = 50000;  // host memory is slow to read
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

// Waits until the conditions of all threads of the group hold; each thread may have its own. A
// condition must acquire what it reads.
// Threads: all threads of the group call it.
template <class Condition>
TC_DEVICE Result wait_until(const TeamState& team, const Group& group, int waited_for,
                            const Condition& condition) {
  constexpr uint32_t kLooks = 32;
  uint64_t since_ns = 0;
  bool stopped = false;
  for (uint32_t looks = 1; !stopped && !condition(); ++looks) {
    pause();
    if (looks % kLooks != 0) continue;
    if (since_ns == 0) since_ns = now_ns();
    stopped = must_stop(team, since_ns, waited_for);
  }
  if (!group.any(stopped)) return kDone;
  return result_of(load_relaxed(team.stop));
}

}  // namespace torchcomms::device
