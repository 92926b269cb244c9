#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "schedule/algorithm.hpp"

// Estimates how long an algorithm takes: the numbers of its cost times constants of the link. Pure
// functions.
namespace torch::comms::ctran {

// What connects the ranks, from the cheapest link to the most expensive.
enum class LinkType : uint8_t { kSelf, kShm, kTcp };
inline constexpr size_t kLinkTypes = 3;

// What all ranks of an operation equally know of their placement. A rank that decided by other
// facts could decide differently from its peers.
struct TopologyFacts {
  LinkType link = LinkType::kSelf;  // the most expensive between any two ranks
  int local_ranks = 1;              // on the host that has most of them
  int cores = 1;                    // that they share there; the fewest if hosts differ
};

// The cost of one link type. Measured by `torchcomms tune`.
struct LinkCost {
  double step_ns = 0;     // a step that sends nothing: to see that peers have arrived
  double message_ns = 0;  // one more message of a step
  double byte_ps = 0;     // a byte that is sent, received and stored
  double reduce_ps = 0;   // a byte that is reduced
};

// The bytes of an element as it travels.
struct ElementSizes {
  size_t bytes = 1;
  // Of the wider dtype in which sums travel from rank to rank, so that they are rounded once.
  // Algorithms that add everything at once do not need it. 0: none.
  size_t accumulator_bytes = 0;

  // `rounds`: whether sums of elements of `bytes` are kept in a wider dtype.
  static ElementSizes of(size_t bytes, bool rounds) noexcept {
    return {bytes, rounds ? std::max<size_t>(4, 2 * bytes) : 0};
  }
};

struct CostConstants {
  std::array<LinkCost, kLinkTypes> uncontended;     // every rank of a host has a core
  std::array<LinkCost, kLinkTypes> oversubscribed;  // ranks share cores, and switch between them
  // Scratch over `cache_bytes` is out of the cache when it is read. A sent byte then costs
  // `uncached_factor` times as much.
  double cache_bytes = 0;
  double uncached_factor = 1;
};

// The defaults, measured on a machine with two cores, one core for each rank.
extern const CostConstants kDefaultConstants;

// Returns "self", "shm" or "tcp".
std::string_view name(LinkType link) noexcept;

// Returns the time of `algorithm` for a problem that it supports. For an all_to_all with given
// counts the time is this rank's own view and may not decide for all ranks.
// Units: ns.
double estimate_ns(const schedule::Algorithm& algorithm, const schedule::Problem& problem,
                   const ElementSizes& element, const TopologyFacts& facts,
                   const CostConstants& constants);

}  // namespace torch::comms::ctran
