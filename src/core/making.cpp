#include "core/making.hpp"

#include <algorithm>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "bootstrap/launcher.hpp"
#include "core/cpu_backend.hpp"
#include "core/part.hpp"
#include "core/record.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms {
namespace {

std::optional<bootstrap::LaunchInfo> known_launch() {
  try {
    return bootstrap::discover();
  } catch (const CommError&) {
    return std::nullopt;
  }
}

std::optional<uint32_t> record(tracing::CommunicatorInfo communicator) {
  if (communicator.size < 2) return std::nullopt;
  communicator.is_initializing = true;
  return tracing::record_communicator(communicator, record_vocabulary());
}

}  // namespace

Making::Making(const std::string& name, const std::string& backend, const CommOptions& options) {
  if (options.enable_reconfigure) return;
  if (const auto launch = known_launch())
    record_id_ = record({.name = name,
                         .backend = backend,
                         .rank = launch->rank,
                         .size = launch->size,
                         .global_rank = rank_in_larger_job(launch->size).value_or(-1)});
}

Making::Making(const std::string& name, const std::string& backend, const Members& members)
    : record_id_(record({.name = name,
                         .backend = backend,
                         .rank = members.rank,
                         .size = members.size(),
                         .membership = members.uuid,
                         .identity = members.identity()})) {}

Making::Making(const std::string& name, const std::string& backend, const std::vector<int>& ranks,
               int rank, const std::vector<int>& of_parent) {
  std::vector<int> members;
  if (!of_parent.empty())
    for (const int member : ranks) members.push_back(of_parent[static_cast<size_t>(member)]);
  record_id_ = record({.name = name_of_split(name, ranks),
                       .backend = backend,
                       .rank = static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin()),
                       .size = static_cast<int>(ranks.size()),
                       .members = std::move(members),
                       .is_split = true});
}

Making::~Making() {
  if (record_id_) tracing::process_ring().end_communicator(*record_id_, true);
}

}  // namespace torch::comms
