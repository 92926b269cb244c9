#include "backends/gloo/gloo_backend.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/gloo_group.hpp"
#include "base/net/peer_error_text.hpp"
#include "base/op_order.hpp"
#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "base/os/secret.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/comm/error_context.hpp"
#include "core/options/hint.hpp"
#include "core/options/hint_table.hpp"
#include "core/rendezvous/init_handle.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/rendezvous/store_keepalive.hpp"
#include "core/staging/staging.hpp"
#include "core/work/deferred_teardown.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;

// The longest pause between two polls of the store while the members of a split arrive.
constexpr milliseconds kMaxSplitPollInterval{100};

// The store key by which ranks inform rank 0 that a split was made, and the timeout to set or read
// it.
constexpr const char* kSplits = "splits";
constexpr milliseconds kSplitKeyTimeout{1000};

const BackendRegistration registration("gloo", [] { return std::make_shared<TorchCommGloo>(); });

std::string joined_with_commas(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

// Converts an error of the communicator `child` to the ranks of its parent. `parent_context` is the
// context in the parent.
CommError by_ranks_of_parent(const CommError& error, const std::string& child,
                             const std::vector<int>& ranks, Context parent_context) {
  const auto rank_of = [&ranks](int member) {
    const bool is_member = member >= 0 && member < static_cast<int>(ranks.size());
    return is_member ? ranks[static_cast<size_t>(member)] : -1;
  };
  const auto& child_context = error.context();
  parent_context.peer = rank_of(child_context.peer);
  for (const int member : child_context.culprits)
    parent_context.culprits.push_back(rank_of(member));
  parent_context.limit = child_context.limit;
  return {error.code(),
          "'" + child + "', whose rank numbers are positions in the list of ranks " +
              joined_with_commas(ranks) + ": " + error.why(),
          parent_context};
}

}  // namespace

TorchCommGloo::TorchCommGloo() : fork_generation_(base::fork_generation()) {}

TorchCommGloo::~TorchCommGloo() {
  if (fork_generation_ != base::fork_generation()) {
    // Gloo's threads exist only in the parent process, so this process must not touch its state.
    static_cast<void>(group_.release());
    static_cast<void>(store_.release());
    static_cast<void>(reconfiguration_.release());
    return;
  }
  // This does not block, because the caller may hold locks that Gloo's threads need, such as
  // Python's GIL.
  gloo::teardown_group(std::move(group_), /*may_block=*/false);
}

void TorchCommGloo::init(at::Device device, const std::string& name, const CommOptions& options) {
  require_stageable(device, "gloo", name);
  device_ = device;
  begin_init(name, options, {.op = "new_comm", .comm = name});
  if (!reconfiguration_)
    connect_members(rendezvous(name, options_, getBackendName()), {}, name, {});
}

void TorchCommGloo::init(const bootstrap::LaunchInfo& launch, const std::string& name,
                         const CommOptions& options) {
  begin_init(name, options, {.op = "new_comm", .comm = name});
  if (!reconfiguration_)
    connect_members(rendezvous(launch, name, options_, getBackendName()), {}, name, {});
}

void TorchCommGloo::begin_init(const std::string& name, const CommOptions& options,
                               const Context& where) {
  wait_for_teardowns();
  name_ = name;
  options_ = options;
  options_.timeout = timeout_or_default(options.timeout);
  warn_unknown_hints(options.hints);
  monitor_options_ = std::make_unique<common::MonitorOptions>(
      with_context(where, [&options] { return common::parse_monitor_options(options); }));
  if (!options.enable_reconfigure) return;
  reconfiguration_ = std::make_unique<Reconfiguration>("gloo", name, options_);
  options_.store.reset();
}

void TorchCommGloo::connect_members(const Rendezvous& rendezvous, const gloo::SplitParent& origin,
                                    const std::string& name, std::vector<int> ranks) {
  auto member = std::make_shared<const gloo::GlooCommInfo>(
      gloo::GlooCommInfo{.name = name,
                         .rank = rendezvous.rank,
                         .size = rendezvous.size,
                         .identity = rendezvous.identity});
  phases_ = rendezvous.phases;
  const gloo::GlooCall call{OpName::split, member, rendezvous.timeout.duration, true, false};
  group_ = gloo::connect_group(options_, call, rendezvous, origin, phases_);
  for (int rank = 0; origin.group == nullptr && rank < rendezvous.size; ++rank)
    ranks.push_back(rank);
  ranks_ = std::move(ranks);
  store_ = rendezvous.store;
  is_store_private_ = rendezvous.is_store_private;
  are_splits_announced_ = false;  // the new store does not have the key yet
  device_ = staged_device(device_, rendezvous.rank, "gloo");
  options_.store.reset();
  if (!reconfiguration_) {
    InitHandleInfo handle{
        .backend = "gloo", .rank = rendezvous.rank, .identity = base::random_number()};
    handle.set_store_address(rendezvous.address);
    init_handle_ = handle.to_text();
  }
  comm_info_ = std::move(member);
}

void TorchCommGloo::finalize() {
  const bool failed = group_ && group_->peer_monitor->has_failure();
  if (group_) gloo::announce_close(*group_, getSize());
  gloo::teardown_group(std::move(group_), /*may_block=*/true);
  if (reconfiguration_) reconfiguration_->close();
  const auto store = std::exchange(store_, {});
  if (store && is_store_private_ && getRank() == 0 && !failed) keep_store_for_splits(store);
}

// Errors are only logged: a member that arrives after the store is gone reports its own failure.
void TorchCommGloo::announce_splits() {
  if (!is_store_private_ || are_splits_announced_) return;
  try {
    StoreKeyValue(store_, bootstrap::Deadline(kSplitKeyTimeout), {}).set(kSplits, "yes");
    are_splits_announced_ = true;
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    base::log(base::LogLevel::kDebug, std::string("cannot inform rank 0 of a split: ") + e.what());
  }
}

void TorchCommGloo::keep_store_for_splits(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    if (StoreKeyValue(store, bootstrap::Deadline(kSplitKeyTimeout), {}).has({kSplits}))
      keep_store_alive(store);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    base::log(base::LogLevel::kDebug,
              std::string("cannot keep the store alive for splits: ") + e.what());
  }
}

int TorchCommGloo::getRank() const { return comm_info_ ? comm_info_->rank : -1; }
int TorchCommGloo::getSize() const { return comm_info_ ? comm_info_->size : -1; }
std::string_view TorchCommGloo::getCommName() const {
  return comm_info_ ? std::string_view(comm_info_->name) : std::string_view(name_);
}

Capabilities TorchCommGloo::capabilities() const {
  auto can = staged_capabilities();
  can.reconfigure = true;
  can.any_source = true;
  can.counts_splits = false;  // ranks that are in no list need not call split()
  return can;
}

gloo::GlooCall TorchCommGloo::begin_call(OpName op, bool async_op,
                                         const OperationOptions& options) {
  if (!group_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized",
                    {.op = std::string(opToString(op)), .comm = std::string(getCommName())});
  if (reconfiguration_ && reconfiguration_->is_excluded())
    throw CommError(*reconfiguration_->check_excluded(
        {.op = std::string(opToString(op)), .comm = name_, .rank = getRank()}));
  const bool own = options.timeout.count() > 0;
  gloo::GlooCall call{op, comm_info_, own ? options.timeout : options_.timeout, own, async_op};
  try {
    raise_failure(call);
    if (op == OpName::split) return call;  // a split makes connections of its own
    group_->connections->require_open(call);
    if (monitor_options_->check_before_start && group_->group_monitor) check_mismatch(call);
  } catch (const CommError& e) {
    throw explain_error(e);
  }
  return call;
}

void TorchCommGloo::raise_failure(const gloo::GlooCall& call) const {
  group_->peer_monitor->raise_failure([&call] { return context(call); });
  if (const auto left = group_->peer_monitor->closed_before(context(call), call.sequence))
    throw *left;
}

void TorchCommGloo::check_mismatch(const gloo::GlooCall& call) {
  if (!base::is_collective_sequence(call.sequence)) return;
  const auto interrupt_check = [&] {
    check_interrupt();
    raise_failure(call);
  };
  try {
    const auto where =
        group_->peer_monitor->consistency_barrier(call.sequence, call.deadline(), interrupt_check);
    if (!where) return;
    group_->connections->close(std::string(opToString(call.op)));
    throw gloo::timeout_error(call, where->culprits, "", where->text);
  } catch (const Interrupted& e) {
    group_->connections->close("interrupted " + std::string(opToString(call.op)));
    e.rethrow_cause();
  }
}

void TorchCommGloo::setTimeout(milliseconds timeout) {
  options_.timeout = timeout_or_default(timeout);
}

uint64_t TorchCommGloo::comm_identity() const { return comm_info_ ? comm_info_->identity : 0; }

std::shared_ptr<OperationObserver> TorchCommGloo::operation_observer() {
  return group_ ? group_->collective_log : nullptr;
}

std::map<std::string, std::string> TorchCommGloo::describe_entries() const {
  if (!group_ || getSize() == 1) return {};
  return {{"side channel",
           group_->group_monitor ? common::describe_monitor(*monitor_options_) : "none"}};
}

std::shared_ptr<TorchCommBackend> TorchCommGloo::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  if (ranks.empty()) {
    if (group_ && !group_->peer_monitor->has_failure()) announce_splits();
    return nullptr;
  }
  const auto now = begin_call(OpName::split, false, {});
  const auto own = std::find(ranks.begin(), ranks.end(), comm_info_->rank);
  if (own == ranks.end())
    throw CommError(Errc::kInvalidArgument,
                    "rank " + std::to_string(comm_info_->rank) +
                        " is missing from the list of ranks " + joined_with_commas(ranks) +
                        ". Pass a list with the calling rank, or [] to take no part",
                    context(now));

  auto child = std::make_shared<TorchCommGloo>();
  child->device_ = device_;
  child->begin_init(name, inherit_call_check(monitor_options_->check_before_start, options),
                    context(now));
  child->options_.hints[hint::kPersistentStore.name] = "true";
  // The prefix depends only on the members, so concurrent splits of other members cannot interfere.
  // The store counts how often these members have split.
  child->options_.store =
      c10::make_intrusive<c10d::PrefixStore>("split/" + joined_with_commas(ranks), store_);
  std::vector<int> global_ranks;
  global_ranks.reserve(ranks.size());
  for (const int rank : ranks) global_ranks.push_back(ranks_[static_cast<size_t>(rank)]);

  const auto child_name = split_comm_name(name, ranks);
  bootstrap::LaunchInfo launch;
  launch.rank = static_cast<int>(own - ranks.begin());
  launch.size = static_cast<int>(ranks.size());
  launch.source = "split of '" + comm_info_->name + "'";
  launch.evidence = "ranks " + joined_with_commas(ranks);
  auto split_options = child->options_;
  if (split_timeout(options) == kNoTimeout) split_options.timeout = options_.timeout;
  // A member that has failed never arrives.
  std::function<std::optional<std::string>()> find_failure;
  if (group_->group_monitor)
    find_failure = [&, waited = milliseconds(1),
                    left = -1]() mutable -> std::optional<std::string> {
      check_interrupt();
      group_->group_monitor->wait_for_failure(waited);
      group_->peer_monitor->raise_failure([&now] { return context(now); });
      // A member may leave right after it has arrived, so the arrival is checked once more before
      // this error.
      if (left >= 0)
        throw common::peer_closed_error(left, base::peer_closed_text(left), context(now));
      for (const auto& [rank, peer_close] : group_->group_monitor->peer_closes())
        if (std::ranges::count(ranks, rank) > 0) left = rank;
      waited = std::min(2 * waited, kMaxSplitPollInterval);
      return std::nullopt;
    };
  try {
    announce_splits();
    const auto result =
        rendezvous(launch, child_name, split_options, {}, std::move(find_failure), "split");
    child->connect_members(result, {group_.get(), ranks}, child_name, std::move(global_ranks));
  } catch (const CommError& e) {
    // A peer's error may name the rank that left first because of the failure, so the failure
    // itself takes precedence.
    if (const auto why = group_->peer_monitor->failure(context(now));
        why && e.code() == Errc::kPeerFailed)
      throw CommError(*why);
    if (e.context().comm != child_name) throw;
    throw by_ranks_of_parent(e, child_name, ranks, context(now));
  }
  return child;
}

}  // namespace torch::comms
