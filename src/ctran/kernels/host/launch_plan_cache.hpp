#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctran/kernels/host/library.hpp"

// Caches launch plans by call, because a training step repeats the same few calls. Includes only
// the standard library.
namespace torch::comms::ctran::kernels {

using CallKey = std::array<uint64_t, 3>;

// Returns everything in a call that plans depend on, except its root. `more`: other inputs of the
// plan.
constexpr CallKey key_of(const KernelCall& call, uint64_t more) noexcept {
  const auto at = [](auto value, int shift) { return static_cast<uint64_t>(value) << shift; };
  return {call.count,
          at(call.collective, 0) | at(call.algorithm, 8) | at(call.dtype, 16) | at(call.op, 24) |
              at(static_cast<uint32_t>(call.blocks), 32),
          more};
}

// A direct-mapped cache: each key has one slot, which keeps the last value. Threads: one.
template <class Value>
class LaunchPlanCache {
 public:
  const Value* find(const CallKey& key) const noexcept {
    const auto& slot = slots_[slot_of(key)];
    return slot.is_used && slot.key == key ? &slot.value : nullptr;
  }
  const Value& store(const CallKey& key, const Value& value) noexcept {
    auto& slot = slots_[slot_of(key)];
    slot = {key, value, true};
    return slot.value;
  }
  void clear() noexcept { slots_ = {}; }

 private:
  static constexpr int kBits = 4;
  struct CachedPlan {
    CallKey key{};
    Value value{};
    bool is_used = false;
  };

  // Multiplicative hashing [Knuth, The Art of Computer Programming 3, 6.4].
  static constexpr size_t slot_of(const CallKey& key) noexcept {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    const uint64_t mixed = ((key[0] * kGolden ^ key[1]) * kGolden ^ key[2]) * kGolden;
    return static_cast<size_t>(mixed >> (64 - kBits));
  }

  std::array<CachedPlan, size_t{1} << kBits> slots_{};
};

}  // namespace torch::comms::ctran::kernels
