#include "ctran/selection/cost_model.hpp"

#include <algorithm>

#include "transport/protocol/protocol_thresholds.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Algorithm;
using schedule::Cost;
using schedule::Operation;
using schedule::Problem;

// What a rank sends, by destination.
struct HostTraffic {
  double local_messages = 0, local_elements = 0;    // to ranks of this host
  double remote_messages = 0, remote_elements = 0;  // to other hosts
};

// Whether a rank forwards a vector in chunks. It then waits for as many chunks as the path is long.
bool forwards_chunks(const Algorithm& algorithm) {
  const bool whole = algorithm.operation == Operation::kBroadcast ||
                     algorithm.operation == Operation::kReduce ||
                     algorithm.operation == Operation::kAllReduce;
  return whole && (algorithm.name == "chain" || algorithm.name == "tree");
}

// On one host, receivers copy larger messages out of the sender's memory. Very large messages of
// one-way operations are written and read at the same time instead, so that the sender does a share
// of the work. The transport also exempts messages that are reduced on arrival, and adapts to what
// it measures; this model does neither.
constexpr double kCopiedByReceiver = transport::kMaxEagerBytes;  // bytes over which
constexpr double kCopiedByBoth = transport::kMaxInitialRemoteReadBytes;

bool goes_one_way(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kScatter ||
         operation == Operation::kGather || operation == Operation::kReduce;
}

// Returns the elements that the slowest path through the schedule carries.
double path_elements(const Algorithm& algorithm, const Problem& problem, const Cost& cost,
                     bool one_host, double bytes) {
  auto most = static_cast<double>(std::max(cost.sent, cost.received));
  const double message = most * bytes / std::max(1.0, static_cast<double>(cost.messages));
  const bool by_both = goes_one_way(algorithm.operation) && message > kCopiedByBoth;
  if (one_host && message > kCopiedByReceiver && !by_both)
    most = static_cast<double>(cost.received);
  if (!forwards_chunks(algorithm)) return most;
  const int64_t chunk = problem.options.chunk > 0 ? problem.options.chunk : problem.count();
  return std::max(most, static_cast<double>(cost.steps) *
                            static_cast<double>(std::min(chunk, problem.count())));
}

// Returns what the rank of the first host that sends most to other hosts sends to both. Chunks are
// ignored because they do not change where data goes.
HostTraffic share_between_hosts(const Algorithm& algorithm, Problem problem) {
  problem.options.chunk = 0;
  HostTraffic most;
  schedule::Step step;
  for (int rank = 0; rank < problem.options.local_size; ++rank) {
    const Problem rank_problem = problem.for_rank(rank);
    HostTraffic traffic;
    for (int64_t t = 0; t < algorithm.steps(rank_problem); ++t) {
      algorithm.step(rank_problem, t, step);
      for (const auto& action : step.transfers()) {
        if (action.kind != schedule::ActionKind::kSend &&
            action.kind != schedule::ActionKind::kSignal)
          continue;
        const bool remote = action.peer >= problem.options.local_size;
        (remote ? traffic.remote_messages : traffic.local_messages) += 1;
        (remote ? traffic.remote_elements : traffic.local_elements) +=
            static_cast<double>(action.from.count);
      }
    }
    if (rank == 0 || traffic.remote_elements > most.remote_elements) most = traffic;
  }
  return most;
}

// Returns the bytes of an element in this algorithm's messages.
double bytes_of(const Algorithm& algorithm, const ElementSizes& element) {
  const bool at_once = algorithm.reduction_order == schedule::ReductionOrder::kNone ||
                       (algorithm.reduction_order == schedule::ReductionOrder::kRankOrder &&
                        algorithm.functions.scratch != nullptr);
  return static_cast<double>(at_once ? element.bytes
                                     : std::max(element.bytes, element.accumulator_bytes));
}

double fraction(double part, double rest) { return part + rest > 0 ? part / (part + rest) : 1.0; }

}  // namespace

// clang-format off
constinit const CostConstants kDefaultConstants{
    .uncontended = {{{.step_ns = 100, .message_ns = 0, .byte_ps = 20, .reduce_ps = 15},
               {.step_ns = 350, .message_ns = 150, .byte_ps = 45, .reduce_ps = 30},
               {.step_ns = 25'000, .message_ns = 5'000, .byte_ps = 250, .reduce_ps = 15}}},
    .oversubscribed = {{{.step_ns = 100, .message_ns = 0, .byte_ps = 20, .reduce_ps = 15},
                 {.step_ns = 1'500, .message_ns = 250, .byte_ps = 45, .reduce_ps = 30},
                 {.step_ns = 30'000, .message_ns = 8'000, .byte_ps = 250, .reduce_ps = 15}}},
    .cache_bytes = 1 << 20,
    .uncached_factor = 2};
// clang-format on

std::string_view name(LinkType link) noexcept {
  constexpr std::string_view kNames[kLinkTypes] = {"self", "shm", "tcp"};
  return kNames[static_cast<size_t>(link)];
}

double estimate_ns(const Algorithm& algorithm, const Problem& problem, const ElementSizes& element,
                   const TopologyFacts& facts, const CostConstants& constants) {
  const Cost cost = algorithm.cost(problem);
  const double bytes = bytes_of(algorithm, element);
  const double ranks_per_core =
      std::max(1.0, static_cast<double>(facts.local_ranks) / std::max(1, facts.cores));
  const auto& rows = ranks_per_core > 1 ? constants.oversubscribed : constants.uncontended;
  const LinkCost& link = rows[static_cast<size_t>(facts.link)];
  const LinkCost& local = rows[static_cast<size_t>(std::min(facts.link, LinkType::kShm))];

  double remote_byte_share = 1, remote_message_share = 1;
  const int local_size = problem.options.local_size;
  if (facts.link == LinkType::kTcp && local_size > 1 && local_size < problem.size &&
      problem.operation != Operation::kAllToAll) {
    const HostTraffic traffic = share_between_hosts(algorithm, problem);
    remote_byte_share = fraction(traffic.remote_elements, traffic.local_elements);
    remote_message_share = fraction(traffic.remote_messages, traffic.local_messages);
  }
  const double message_ns =
      remote_message_share * link.message_ns + (1 - remote_message_share) * local.message_ns;
  double byte_ps = remote_byte_share * link.byte_ps + (1 - remote_byte_share) * local.byte_ps;
  if (static_cast<double>(cost.scratch) * bytes > constants.cache_bytes)
    byte_ps *= constants.uncached_factor;

  const double moved_bytes =
      path_elements(algorithm, problem, cost, facts.link != LinkType::kTcp, bytes) * bytes;
  const double reduced_bytes = static_cast<double>(cost.reduced) * bytes;
  const double work_ns = static_cast<double>(cost.messages) * message_ns +
                         (moved_bytes * byte_ps + reduced_bytes * link.reduce_ps) / 1000;
  return static_cast<double>(cost.steps) * link.step_ns + ranks_per_core * work_ns;
}

}  // namespace torch::comms::ctran
