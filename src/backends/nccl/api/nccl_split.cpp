#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/common/collective_log.hpp"
#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/api/nccl_options.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/options/hint.hpp"
#include "core/work/interruptible_call.hpp"
#include "monitor/fingerprint.hpp"
#include "monitor/rank_progress.hpp"
#include "tracing/recorder.hpp"

// NcclApiBackend::split(). The library groups ranks by color and does not know which ranks each of
// them lists.
namespace torch::comms {
namespace {

// How long the ranks that the library has grouped may take to exchange their numbers.
constexpr std::chrono::seconds kMemberLookupTimeout{2};

// Returns: the color for a list of ranks below `size`. Ranks with the same list get the same color.
// Lists without a common rank have different smallest ranks. Other lists that differ, even only in
// order, have different hashes, except for one in a million.
int color_of(const std::vector<int>& ranks, int size) {
  const auto hashes = static_cast<uint64_t>(std::numeric_limits<int>::max() / size);
  const auto hash = monitor::hash_bytes(ranks.data(), ranks.size() * sizeof(int)) % hashes;
  return *std::min_element(ranks.begin(), ranks.end()) * static_cast<int>(hashes) +
         static_cast<int>(hash);
}

}  // namespace

std::shared_ptr<TorchCommBackend> NcclApiBackend::split(const std::vector<int>& ranks,
                                                        const std::string& name,
                                                        const CommOptions& options) {
  const auto now = begin_call(OpName::split, false, OperationOptions{{}, split_timeout(options)});
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (!ranks.empty() && own == ranks.end())
    throw CommError(Errc::kInvalidArgument,
                    "rank " + std::to_string(rank_) + " is missing from its own list of " +
                        std::to_string(ranks.size()) +
                        " ranks; a rank that takes no part passes an empty list",
                    now.context());
  std::shared_ptr<NcclApiBackend> child;
  if (!ranks.empty()) {
    child = make_child();
    child->library_ = library_;
    child->begin_init(name, inherit_call_check(nccl_options_->monitor.check_before_start, options),
                      now.context());
  }
  const int place = static_cast<int>(own - ranks.begin()), size = static_cast<int>(ranks.size());
  ++split_count_;
  if (child) child->connect_begin_ns_ = tracing::now_ns();
  if (child) child->identity_ = split_identity(identity_, ranks, split_count_);
  const int color = child ? color_of(ranks, size_) : nccl::abi::kNoColor;
  int count = 0;
  const nccl::NcclDevice::DeviceCallGuard device_guard(launch_queue_->device());
  try {
    const size_t free_bytes = launch_queue_->device().runtime().free_bytes();
    auto communicator = launch_queue_->communicator().split(
        color, child ? place : 0, place, size,
        child ? nccl::make_config(child->options_.hints, name) : nccl::make_config(options_.hints),
        make_wait(now));
    if (!child) return nullptr;
    count = communicator->count();
    for (const int rank : ranks) child->ranks_.push_back(ranks_[static_cast<size_t>(rank)]);
    if (group_monitor_ && ranks.size() > 1 && count == size) {
      child->collective_log_ = std::make_shared<common::CollectiveLog>(size);
      child->group_monitor_ = group_monitor_->split(ranks, split_count_, child->collective_log_);
    }
    child->attach_communicator(std::move(communicator),
                               nccl::NcclDevice::open(*library_, device_, rank_,
                                                      child->nccl_options_->high_priority_stream,
                                                      child->nccl_options_->max_events),
                               free_bytes);
  } catch (const Interrupted& e) {
    abort_on_interrupt(e, now, *launch_queue_);
  } catch (const CommError& e) {
    throw_failure(e, now, *launch_queue_);
  }
  // All ranks have taken part, so this communicator stays usable.
  if (count != size) throw explain_error(member_count_error(ranks, count, now, *child));
  return child;
}

CommError NcclApiBackend::member_count_error(const std::vector<int>& ranks, int count,
                                             const nccl::NcclCall& now,
                                             NcclApiBackend& child) const {
  const auto listed = std::to_string(ranks.size());
  const auto error = [&](const std::string& why, std::vector<int> culprits) {
    return CommError(Errc::kMismatch, why, now.context(std::move(culprits)));
  };
  std::string why = "the library has grouped " + std::to_string(count) +
                    " ranks, but the list of this rank has " + listed;
  if (count > static_cast<int>(ranks.size()))
    return error(why + ": other ranks passed a different list", {});
  OperationOptions limits;
  limits.timeout = kMemberLookupTimeout;
  try {
    const auto bytes = child.gather_bytes(std::as_bytes(std::span(&rank_, 1)), limits);
    std::vector<int> present(static_cast<size_t>(count));
    std::memcpy(present.data(), bytes.const_data_ptr(), present.size() * sizeof present[0]);
    std::vector<int> missing;
    for (const int rank : std::set(ranks.begin(), ranks.end()))
      if (std::ranges::find(present, rank) == present.end()) missing.push_back(rank);
    return error(monitor::format_rank_list(missing) + (missing.size() == 1 ? " is" : " are") +
                     " in the list of " + listed + " ranks, but passed [] or a different list",
                 missing);
  } catch (const CommError& e) {
    return error(why + "; the missing ranks could not be determined: " + e.why(), {});
  }
}

}  // namespace torch::comms
