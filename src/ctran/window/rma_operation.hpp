#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "ctran/engine/engine_call.hpp"

namespace torch::comms::ctran {

enum class SlotComparison : uint8_t { kEqual, kAtLeast, kAtMost };

constexpr bool compare_slot(SlotComparison comparison, uint64_t seen, uint64_t wanted) noexcept {
  if (comparison == SlotComparison::kEqual) return seen == wanted;
  return comparison == SlotComparison::kAtLeast ? seen >= wanted : seen <= wanted;
}

// One operation on a window as plain data. The caller must check that offsets and slots are within
// the target's window.
struct RmaOperation {
  enum class Kind : uint8_t {
    kPut,         // writes `from` into the memory of `rank` at byte `offset`
    kSignal,      // adds one to the counter that `rank` keeps for this member
    kStore,       // stores `value` in `slot` of `rank`
    kWaitSignal,  // waits for one more signal of `rank` than all earlier waits
    kWaitSlot,    // waits until `comparison` holds between this member's own `slot` and `value`
    kFlush,       // waits until all puts and signals of this member have arrived
  };
  Kind kind = Kind::kFlush;
  std::string_view name = {};  // the public name, for error texts; has static lifetime
  int rank = 0;
  uint64_t offset = 0;
  ConstBytes from = {};
  uint64_t slot = 0, value = 0;
  SlotComparison comparison = SlotComparison::kEqual;
  CallTimeout timeout = kNoTimeout;
};

}  // namespace torch::comms::ctran
