#include "standin/kernels/host_ring.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace torch::comms::standin {
namespace {

using kernels::HostRingCall;
using kernels::StopReason;

void stop(const HostRingCall& call, StopReason why, uint64_t number) {
  auto& control = *call.control;
  control.waited_for = -1;
  control.launch = number;
  std::atomic_ref(control.stop).store(static_cast<uint32_t>(why), std::memory_order_release);
}

bool is_stopped(const HostRingCall& call, uint64_t number) {
  if (std::atomic_ref(call.control->stop).load() != 0) return true;
  const bool is_wanted =
      std::atomic_ref(call.control->abort).load() != 0 ||
      (call.team_control != nullptr &&
       std::atomic_ref(const_cast<uint32_t&>(call.team_control->stop)).load() != 0);
  if (is_wanted) stop(call, StopReason::kAborted, number);
  return is_wanted;
}

// False where the launch has to leave.
bool wait_until_done(const HostRingCall& call, uint64_t number, uint64_t wanted) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    if (is_stopped(call, number)) return false;
    const uint64_t done = std::atomic_ref(call.ring->done).load(std::memory_order_acquire);
    if (static_cast<int64_t>(done - wanted) >= 0) return true;
    if (call.timeout_ns != 0 &&
        std::chrono::steady_clock::now() - begin > std::chrono::nanoseconds(call.timeout_ns)) {
      stop(call, StopReason::kTimeout, number);
      return false;
    }
    std::this_thread::yield();
  }
}

}  // namespace

void post(const HostRingCall& call) {
  auto& ring = *call.ring;
  const uint64_t number = ring.posted + 1;
  if (!wait_until_done(call, number, number - kernels::kHostRingSlots)) return;
  auto& command = ring.commands[number % kernels::kHostRingSlots];
  std::ranges::copy(call.words, command.words);
  std::atomic_ref(command.number).store(number, std::memory_order_release);
  std::atomic_ref(ring.posted).store(number);
}

void await(const HostRingCall& call) {
  const uint64_t number = call.ring->awaited + 1;
  if (wait_until_done(call, number, number)) call.ring->awaited = number;
}

void seal(const HostRingCall& call) {
  if (!is_stopped(call, call.ring->awaited) || call.nan == 0) return;
  for (size_t i = 0; i < call.output_bytes; ++i)
    static_cast<char*>(call.output)[i] = static_cast<char>(call.nan >> (i % 8 * 8));
}

}  // namespace torch::comms::standin
