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

// One operation on a window as plain data. What is in bounds of what was opened is the caller's to
// check.
struct RmaOperation {
  enum class Kind : uint8_t {
    kPut,         // `from` into `rank`'s memory at byte `offset`
    kSignal,      // one more to the counter that `rank` keeps of this member
    kStore,       // `value` to `slot` of `rank`
    kWaitSignal,  // for one more signal of `rank` than was waited for before
    kWaitSlot,    // until `comparison` holds between this member's own `slot` and `value`
    kFlush,       // until all that this member has put and signalled is where it was to go
  };
  Kind kind = Kind::kFlush;
  std::string_view name = {};  // the public one, for errors; lives forever
  int rank = 0;
  uint64_t offset = 0;
  ConstBytes from = {};
  uint64_t slot = 0, value = 0;
  SlotComparison comparison = SlotComparison::kEqual;
  CallTimeout timeout = kNoTimeout;
};

}  // namespace torch::comms::ctran
