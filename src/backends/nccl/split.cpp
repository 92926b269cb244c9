#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/beside/collective_log.hpp"
#include "backends/nccl/call.hpp"
#include "backends/nccl/hints.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/vendor_backend.hpp"
#include "core/cpu_backend.hpp"
#include "core/hint.hpp"
#include "core/interruptible_call.hpp"
#include "side/fingerprint.hpp"
#include "side/rank_progress.hpp"
#include "tracing/recorder.hpp"

// A communicator of some ranks of another one, which the library puts together without knowing
// whom each of them names.
namespace torch::comms {
namespace {

// For those that the library has put together to tell each other who they are.
constexpr std::chrono::seconds kNaming{2};

// What the library puts those together by that give the same list, of ranks below `size`. Lists
// without a common rank have no smallest one in common; others that differ, be it in their order
// alone, have another hash, but for one of a million.
int color_of(const std::vector<int>& ranks, int size) {
  const auto hashes = static_cast<uint64_t>(std::numeric_limits<int>::max() / size);
  const auto hash = monitor::hash_bytes(ranks.data(), ranks.size() * sizeof(int)) % hashes;
  return *std::min_element(ranks.begin(), ranks.end()) * static_cast<int>(hashes) +
         static_cast<int>(hash);
}

}  // namespace

std::shared_ptr<TorchCommBackend> TorchCommVendor::split(const std::vector<int>& ranks,
                                                         const std::string& name,
                                                         const CommOptions& options) {
  const auto now = call(OpName::split, false, OperationOptions{{}, split_timeout(options)});
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (!ranks.empty() && own == ranks.end())
    throw CommError(Errc::kInvalidArgument, "this rank is missing from the list", now.context());
  std::shared_ptr<TorchCommVendor> made;
  if (!ranks.empty()) {
    made = child();
    made->library_ = library_;
    made->start(name, inherit_call_check(wishes_->beside.check_before_start, options),
                now.context());
  }
  const int place = static_cast<int>(own - ranks.begin()), size = static_cast<int>(ranks.size());
  ++splits_;
  if (made) made->connecting_since_ns_ = tracing::now_ns();
  if (made) made->identity_ = split_identity(identity_, ranks, splits_);
  const int color = made ? color_of(ranks, size_) : nccl::abi::kNoColor;
  int count = 0;
  const nccl::Device::DeviceCallGuard as_before(lane_->device());
  try {
    const size_t free_bytes = lane_->device().runtime().free_bytes();
    auto communicator = lane_->communicator().split(
        color, made ? place : 0, place, size,
        made ? nccl::config_of(made->options_.hints, name) : nccl::config_of(options_.hints),
        wait_of(now));
    if (!made) return nullptr;
    count = communicator->count();
    for (const int rank : ranks) made->ranks_.push_back(ranks_[static_cast<size_t>(rank)]);
    if (circle_ && ranks.size() > 1 && count == size) {
      made->record_ = std::make_shared<common::CollectiveLog>(size);
      made->circle_ = circle_->split(ranks, splits_, made->record_);
    }
    made->enter(std::move(communicator),
                nccl::Device::open(*library_, device_, rank_, made->wishes_->high_priority_stream,
                                   made->wishes_->most_events),
                free_bytes);
  } catch (const Interrupted& e) {
    interrupted(e, now, *lane_);
  } catch (const CommError& e) {
    failed(e, now, *lane_);
  }
  // All ranks have been here, so this communicator goes on.
  if (count != size) throw explained(other_members(ranks, count, now, *made));
  return made;
}

CommError TorchCommVendor::other_members(const std::vector<int>& ranks, int count,
                                         const nccl::Call& now, TorchCommVendor& made) const {
  const auto listed = std::to_string(ranks.size());
  const auto error = [&](const std::string& why, std::vector<int> culprits) {
    return CommError(Errc::kMismatch, why, now.context(std::move(culprits)));
  };
  std::string why = "the library has put " + std::to_string(count) +
                    " ranks together, of which this one names " + listed;
  if (count > static_cast<int>(ranks.size())) return error(why + ": others give another list", {});
  OperationOptions limits;
  limits.timeout = kNaming;
  try {
    const auto bytes = made.gather_bytes(std::as_bytes(std::span(&rank_, 1)), limits);
    std::vector<int> here(static_cast<size_t>(count));
    std::memcpy(here.data(), bytes.const_data_ptr(), here.size() * sizeof here[0]);
    std::vector<int> missing;
    for (const int rank : std::set(ranks.begin(), ranks.end()))
      if (std::ranges::find(here, rank) == here.end()) missing.push_back(rank);
    return error(monitor::format_rank_list(missing) + (missing.size() == 1 ? " is" : " are") +
                     " in the list of " + listed + " ranks, and gave [] or another one",
                 missing);
  } catch (const CommError& e) {
    return error(why + "; who is missing they have not told each other: " + e.why(), {});
  }
}

}  // namespace torch::comms
