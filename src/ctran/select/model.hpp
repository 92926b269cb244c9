#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "schedule/algorithm.hpp"

// What an algorithm takes, as numbers of its cost times constants of the wire. Pure functions.
namespace torch::comms::ctran {

// What connects the ranks, from the cheapest to the dearest.
enum class Wire : uint8_t { kSelf, kShm, kTcp };
inline constexpr size_t kWires = 3;

// What all ranks of an operation know alike of where they are. Who decides by anything else decides
// otherwise than the others.
struct Facts {
  Wire wire = Wire::kSelf;  // the dearest between any two ranks
  int local_ranks = 1;      // on the host that has most of them
  int cores = 1;            // that they share there; where hosts differ, the fewest
};

// Of one wire. Measured by `torchcomms tune`.
struct WireCost {
  double step_ns = 0;     // a step in which nothing is sent: seeing that the others are there
  double message_ns = 0;  // one more message of a step
  double byte_ps = 0;     // sent, received and put where it belongs
  double reduce_ps = 0;   // a byte of an addition
};

// Of the data as it travels.
struct Element {
  size_t bytes = 1;
  // Of the wider dtype in which sums go from rank to rank, so that they are rounded once;
  // algorithms that add everything at once do without. 0: there is none.
  size_t sum_bytes = 0;

  // Of `bytes`; `rounds`: sums of it are kept in a wider dtype.
  static Element of(size_t bytes, bool rounds) noexcept {
    return {bytes, rounds ? std::max<size_t>(4, 2 * bytes) : 0};
  }
};

struct Constants {
  std::array<WireCost, kWires> apart;    // every rank of a host has a core
  std::array<WireCost, kWires> crowded;  // ranks share cores, and hand them to each other
  // Scratch over `near_bytes` is out of the cache when it is read: then a sent byte costs `far`
  // times as much.
  double near_bytes = 0;
  double far = 1;
};

// What was measured on a machine with two cores, one of them a rank's.
extern const Constants kUsualConstants;

// "self", "shm", "tcp".
std::string_view name(Wire wire) noexcept;

// Nanoseconds that `algorithm` takes for a problem it can do. Of an all_to_all with given counts it
// is this rank's own view: no decision for all.
double estimate_ns(const schedule::Algorithm& algorithm, const schedule::Problem& problem,
                   const Element& element, const Facts& facts, const Constants& constants);

}  // namespace torch::comms::ctran
