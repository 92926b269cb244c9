#include "ctran/kernels/host/call_fingerprint.hpp"

#include <initializer_list>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"

namespace torch::comms::ctran::kernels {
namespace {

// Hashes parts; every part changes about half of all bits [Steele, Lea, Flood, OOPSLA 2014].
uint64_t mixed(std::initializer_list<uint64_t> parts) {
  uint64_t all = 0;
  for (const uint64_t part : parts) {
    all += part + 0x9e3779b97f4a7c15;
    all = (all ^ all >> 30) * 0xbf58476d1ce4e5b9;
    all = (all ^ all >> 27) * 0x94d049bb133111eb;
    all ^= all >> 31;
  }
  return all;
}

// Which areas of memory the data pass through. Window collectives differ from all others.
enum class LaunchKind : uint8_t { kTeam, kWindow, kCopyEngines };
// Packs the kind of a call into one word.
uint64_t kind_of(LaunchKind launch_kind, Collective collective, Dtype dtype, ReduceOpCode op,
                 int32_t root) {
  const auto at = [](auto value, int shift) { return static_cast<uint64_t>(value) << shift; };
  const bool reduces = is_reduction(collective);
  return at(launch_kind, 0) | at(collective, 8) | (reduces ? at(dtype, 16) | at(op, 24) : 0) |
         (is_rooted(collective) ? at(static_cast<uint32_t>(root), 32) : 0);
}

}  // namespace

uint64_t fingerprint_of(const KernelCall& call, uint64_t how) noexcept {
  const uint64_t kind = kind_of(LaunchKind::kTeam, call.collective, call.dtype, call.op, call.root);
  if (call.collective == Collective::kBarrier) return mixed({kind});
  return mixed({kind, call.count * size_of(call.dtype), how});
}

uint64_t fingerprint_of(const QuantizedReduceScatter& call, uint64_t how) noexcept {
  const auto op = call.is_average ? ReduceOpCode::kAverage : ReduceOpCode::kSum;
  const uint64_t kind = static_cast<uint64_t>(Collective::kQuantizedReduceScatter) << 8 |
                        static_cast<uint64_t>(op) << 24;
  return mixed({kind, call.count, how});
}

uint64_t fingerprint_of(const WindowCollectiveCall& call) noexcept {
  const auto& one = call.call;
  const auto launch_kind = uses_copy_engines(call) ? LaunchKind::kCopyEngines : LaunchKind::kWindow;
  const uint64_t kind = kind_of(launch_kind, one.collective, one.dtype, one.op, one.root);
  // Each block receives from the peers' blocks of the same number, except where copy engines copy.
  return mixed({kind, uses_copy_engines(call) ? 0 : static_cast<uint64_t>(one.blocks)});
}

}  // namespace torch::comms::ctran::kernels
