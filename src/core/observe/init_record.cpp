#include "core/observe/init_record.hpp"

#include <algorithm>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "bootstrap/launcher.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/observe/operation_record.hpp"
#include "core/rendezvous/global_rank.hpp"
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

InitRecord::InitRecord(const std::string& name, const std::string& backend,
                       const CommOptions& options) {
  if (options.enable_reconfigure) return;
  if (const auto launch = known_launch())
    record_id_ = record({.name = name,
                         .backend = backend,
                         .rank = launch->rank,
                         .size = launch->size,
                         .global_rank = global_rank_if_subset(launch->size).value_or(-1)});
}

InitRecord::InitRecord(const std::string& name, const std::string& backend,
                       const ReconfigureMembers& members)
    : record_id_(record({.name = name,
                         .backend = backend,
                         .rank = members.rank,
                         .size = members.size(),
                         .membership = members.uuid,
                         .identity = members.identity()})) {}

InitRecord::InitRecord(const std::string& name, const std::string& backend,
                       const std::vector<int>& ranks, int rank, const std::vector<int>& of_parent) {
  std::vector<int> members;
  if (!of_parent.empty())
    for (const int member : ranks) members.push_back(of_parent[static_cast<size_t>(member)]);
  record_id_ = record({.name = split_comm_name(name, ranks),
                       .backend = backend,
                       .rank = static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin()),
                       .size = static_cast<int>(ranks.size()),
                       .members = std::move(members),
                       .is_split = true});
}

InitRecord::~InitRecord() {
  if (record_id_) tracing::process_ring().end_communicator(*record_id_, true);
}

}  // namespace torch::comms
