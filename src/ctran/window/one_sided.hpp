#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "ctran/engine/engine_call.hpp"

namespace torch::comms::ctran {

enum class Comparison : uint8_t { kEqual, kAtLeast, kAtMost };

constexpr bool holds(Comparison comparison, uint64_t seen, uint64_t wanted) noexcept {
  if (comparison == Comparison::kEqual) return seen == wanted;
  return comparison == Comparison::kAtLeast ? seen >= wanted : seen <= wanted;
}

// One operation on a window as plain data. What is in bounds of what was opened is the caller's to
// check.
struct OneSided {
  enum class Kind : uint8_t {
    kPut,         // `from` into `rank`'s memory at byte `offset`
    kSignal,      // one more to the counter that `rank` keeps of this member
    kStore,       // `value` to `slot` of `rank`
    kWaitSignal,  // for one more signal of `rank` than was waited for before
    kWaitSlot,    // until `comparison` holds between this member's own `slot` and `value`
    kSettle,      // until all that this member has put and signalled is where it was to go
  };
  Kind kind = Kind::kSettle;
  std::string_view name = {};  // the public one, for errors; lives forever
  int rank = 0;
  uint64_t offset = 0;
  ConstBytes from = {};
  uint64_t slot = 0, value = 0;
  Comparison comparison = Comparison::kEqual;
  CallTimeout limit = kNoTimeout;
};

}  // namespace torch::comms::ctran
