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
enum class LinkType : uint8_t { kSelf, kShm, kTcp };
inline constexpr size_t kLinkTypes = 3;

// What all ranks of an operation know alike of where they are. Who decides by anything else decides
// otherwise than the others.
struct TopologyFacts {
  LinkType link = LinkType::kSelf;  // the dearest between any two ranks
  int local_ranks = 1;              // on the host that has most of them
  int cores = 1;                    // that they share there; where hosts differ, the fewest
};

// Of one wire. Measured by `torchcomms tune`.
struct LinkCost {
  double step_ns = 0;     // a step in which nothing is sent: seeing that the others are there
  double message_ns = 0;  // one more message of a step
  double byte_ps = 0;     // sent, received and put where it belongs
  double reduce_ps = 0;   // a byte of an addition
};

// Of the data as it travels.
struct ElementSizes {
  size_t bytes = 1;
  // Of the wider dtype in which sums go from rank to rank, so that they are rounded once;
  // algorithms that add everything at once do without. 0: there is none.
  size_t accumulator_bytes = 0;

  // Of `bytes`; `rounds`: sums of it are kept in a wider dtype.
  static ElementSizes of(size_t bytes, bool rounds) noexcept {
    return {bytes, rounds ? std::max<size_t>(4, 2 * bytes) : 0};
  }
};

struct CostConstants {
  std::array<LinkCost, kLinkTypes> uncontended;  // every rank of a host has a core
  std::array<LinkCost, kLinkTypes>
      oversubscribed;  // ranks share cores, and hand them to each other
  // Scratch over `near_bytes` is out of the cache when it is read: then a sent byte costs `far`
  // times as much.
  double cache_bytes = 0;
  double uncached_factor = 1;
};

// What was measured on a machine with two cores, one of them a rank's.
extern const CostConstants kDefaultConstants;

// "self", "shm", "tcp".
std::string_view name(LinkType wire) noexcept;

// Nanoseconds that `algorithm` takes for a problem it can do. Of an all_to_all with given counts it
// is this rank's own view: no decision for all.
double estimate_ns(const schedule::Algorithm& algorithm, const schedule::Problem& problem,
                   const ElementSizes& element, const TopologyFacts& facts,
                   const CostConstants& constants);

}  // namespace torch::comms::ctran
