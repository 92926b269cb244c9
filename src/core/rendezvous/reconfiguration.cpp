#include "core/rendezvous/reconfiguration.hpp"

#include <algorithm>
#include <thread>
#include <unordered_set>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/os/log.hpp"
#include "base/os/secret.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/comm/error_context.hpp"
#include "core/observe/init_record.hpp"
#include "core/rendezvous/member_store.hpp"
#include "core/rendezvous/membership_proposals.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/work/failed_work.hpp"
#include "core/work/interruptible_call.hpp"
#include "core/work/scoped_interrupt_check.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;
using Clock = Deadline::Clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kAfterErrorTimeout{500};  // for calls of the store after an error
constexpr size_t kMaxQueriedStores = 4;          // stores that a possibly excluded member asks

// The waiting step of a member: it sleeps, first briefly and later longer, and checks the proposals
// of the others now and then.
class ConflictPoller {
 public:
  ConflictPoller(MembershipProposals& proposals, Deadline deadline)
      : proposals_(proposals), deadline_(deadline) {}

  std::optional<std::string> operator()() {
    check_interrupt();
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin_);
    const auto pause = std::clamp(waited / 4, milliseconds(1), milliseconds(250));
    std::this_thread::sleep_for(std::min(pause, deadline_.remaining()));
    const auto now = Clock::now();
    if (now - last_check_ < kCheckInterval) return std::nullopt;
    last_check_ = now;
    return proposals_.find_conflict();
  }

 private:
  static constexpr milliseconds kCheckInterval{100};
  MembershipProposals& proposals_;
  Deadline deadline_;
  Clock::time_point begin_ = Clock::now(), last_check_ = begin_;
};

}  // namespace

Reconfiguration::Reconfiguration(const std::string& backend, std::string name,
                                 const CommOptions& options)
    : name_(std::move(name)), timeout_(timeout_or_default(options.timeout)) {
  self_.backend = backend;
  self_.identity = base::random_number();
  store_ = open_member_store(name_, options, self_);
}

Reconfiguration& Reconfiguration::require(const std::unique_ptr<Reconfiguration>& its,
                                          const Context& context) {
  if (its) return *its;
  throw CommError(Errc::kUnsupported,
                  "the communicator was made without enable_reconfigure=True, so its members "
                  "cannot change",
                  context);
}

ReconfigureMembers Reconfiguration::parse_members(const ReconfigureOptions& options,
                                                  milliseconds timeout) const {
  const auto refuse = [&](const std::string& why) {
    return CommError(Errc::kInvalidArgument, why, {.op = "reconfigure", .comm = name_});
  };
  if (options.timeout && (options.timeout->count() <= 0 || *options.timeout > kMaxTimeout))
    throw refuse("timeout is " + std::to_string(options.timeout->count()) +
                 " ms; it must be positive, and up to 1e9 seconds");
  if (used_uuids_.contains(options.uuid))
    throw refuse("uuid " + std::to_string(options.uuid) +
                 " was used before on this communicator; every reconfigure() needs another one, "
                 "the same for all members");
  ReconfigureMembers members;
  members.abort_count = abort_count_.load();
  members.uuid = options.uuid;
  const auto* list = std::get_if<std::vector<InitHandle>>(&options.handles);
  const auto* set = std::get_if<std::unordered_set<InitHandle>>(&options.handles);
  try {
    if (list != nullptr)
      for (const auto& text : *list)
        members.handles.push_back(parse_init_handle(text, self_.backend));
    else
      for (const auto& text : *set)
        members.handles.push_back(parse_init_handle(text, self_.backend));
  } catch (const CommError& e) {
    throw refuse(e.why());
  }
  if (set != nullptr) std::sort(members.handles.begin(), members.handles.end(), is_ordered_before);
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < members.handles.size(); ++i) {
    const auto& handle = members.handles[i];
    if (!seen.insert(handle.identity).second)
      throw refuse("init_handles has one member twice: " + handle.to_text());
    if (handle.identity == self_.identity) members.rank = static_cast<int>(i);
  }
  if (members.rank < 0)
    throw refuse("this member's own handle (" + handle() + ") is not among the " +
                 std::to_string(members.handles.size()) + " init_handles");
  members.timeout = {options.timeout.value_or(timeout),
                     options.timeout ? "timeout= of reconfigure"
                                     : "timeout= of reconfigure, or the communicator's"};
  require_reachable_store(members, store_, {.op = "reconfigure", .comm = name_});
  return members;
}

Reconfiguration::ShrinkPlan Reconfiguration::shrink_plan(const ReconfigureMembers& members) const {
  const auto not_because = [](const std::string& why) { return ShrinkPlan{{}, {}, why}; };
  if (connected_members_.size() < 2) return not_because("this member had no peers");
  const auto& first = connected_members_.handles.front();
  ShrinkPlan plan{
      .parent_key = std::to_string(connected_members_.uuid) + "/" + std::to_string(first.identity),
      .excluded_ranks = {},
      .not_shrinkable_reason = {}};
  int at = 0;
  for (const auto& member : members.handles) {
    const auto is_it = [&] {
      return connected_members_.handles[static_cast<size_t>(at)].identity == member.identity;
    };
    while (at < connected_members_.size() && !is_it()) plan.excluded_ranks.push_back(at++);
    if (at++ == connected_members_.size())
      return not_because(member.to_text() +
                         " was not a member before, or has another order in the list");
  }
  while (at < connected_members_.size()) plan.excluded_ranks.push_back(at++);
  if (plan.excluded_ranks.empty()) return not_because("no member leaves");
  return plan;
}

bool Reconfiguration::is_at_own_store(const InitHandleInfo& member) const noexcept {
  return member.host.empty() || member.has_same_address(self_);
}

StorePtr Reconfiguration::connect_to_store(const InitHandleInfo& member, Deadline deadline,
                                           const Context& context) const {
  if (!is_at_own_store(member)) return join_member_store(member, timeout_, deadline, context);
  auto connection = share_store(store_, deadline, context);
  connection->setTimeout(timeout_);
  return connection;
}

bootstrap::ArrivalBarrierResult Reconfiguration::wait_for_members(const ReconfigureMembers& members,
                                                                  Deadline deadline) {
  StoreKeyValue store(rendezvous_store_, deadline, {});
  MembershipProposals proposals(store, members);
  return bootstrap::wait_for_all_ranks(
      store, {.key_scope = kReconfigureKeyPrefix,
              .name = "uuid " + std::to_string(members.uuid) + " of list " +
                      std::to_string(proposals.list_hash()),
              .rank = members.rank,
              .size = members.size(),
              .process_description = "'" + name_ + "' in " + format_process(),
              .timeout = members.timeout,
              .deadline = deadline,
              .conflict_check = ConflictPoller(proposals, deadline)});
}

WorkPtr Reconfiguration::run(const ReconfigureMembers& members,
                             const std::function<void(const Rendezvous&)>& connect) {
  const InitRecord init_record(name_, self_.backend, members);
  WorkPtr work;
  try {
    try {
      {
        const ScopedInterruptCheck check([&] { require_not_aborted(members); });
        connect(rendezvous_members(members));
      }
      require_not_aborted(members);
      on_connected(members);
      work = completedWork();
    } catch (const Interrupted& e) {
      e.rethrow_cause();
    }
  } catch (const CommError& e) {
    work = c10::make_intrusive<FailedWork>(e);
  }
  rendezvous_store_.reset();
  return work;
}

void Reconfiguration::require_not_aborted(const ReconfigureMembers& members) const {
  if (abort_count_.load() == members.abort_count) return;
  throw CommError(Errc::kAborted, "abort() was called",
                  {.op = "reconfigure", .comm = name_, .rank = members.rank});
}

Rendezvous Reconfiguration::rendezvous_members(const ReconfigureMembers& members) {
  used_uuids_.insert(members.uuid);
  const Context context{.op = "reconfigure", .comm = name_, .rank = members.rank};
  const Deadline deadline(members.timeout.duration);
  const auto& first = members.handles.front();
  Rendezvous result{.rank = members.rank,
                    .size = members.size(),
                    .source = "reconfigure(uuid=" + std::to_string(members.uuid) + ")",
                    .store = {},
                    .phases = {},
                    .address = {},
                    .timeout = members.timeout,
                    .deadline = deadline,
                    .op = "reconfigure",
                    .identity = members.identity()};
  const auto phase = [&](const char* name, const auto& part) {
    const auto begin = Clock::now();
    try {
      part();
    } catch (const CommError& e) {
      std::string why = std::string("phase '") + name + "': " + e.why();
      if (e.code() == Errc::kTimeout && why.find(members.timeout.setting) == std::string::npos)
        why += ". The timeout is " + bootstrap::format_duration(members.timeout.duration) +
               "; to allow more time, raise " + members.timeout.setting;
      auto error_context = context.blaming(e.context());
      // A store that a member serves is lost when that member fails.
      const bool is_store_lost = e.code() == Errc::kPeerFailed || e.code() == Errc::kTimeout;
      if (is_store_lost && error_context.peer < 0 && members.rank > 0 && first.loopback != 0)
        error_context.peer = 0;
      error_context.limit = members.timeout.duration;
      throw CommError(e.code(), why, error_context);
    }
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    result.phases.push_back({name, took.count()});
  };
  if (members.size() == 1) {
    // A single member needs no store. If there is one, the members that it leaves or that wait for
    // it get a notice.
    try {
      const Deadline own_deadline(std::min(kAfterErrorTimeout, deadline.remaining()));
      rendezvous_store_ = connect_to_store(self_, own_deadline, context);
      StoreKeyValue store(rendezvous_store_, own_deadline, context);
      MembershipProposals::propose_single_member(store, members);
    } catch (const CommError& e) {
      base::log(base::LogLevel::kInfo, e.what());
    }
    result.store = c10::make_intrusive<c10d::HashStore>();
    result.address = store_address(result.store);
    return result;
  }
  phase("store", [&] { rendezvous_store_ = connect_to_store(first, deadline, context); });
  phase("arrive", [&] {
    const auto prefix = wait_for_members(members, deadline).key_prefix + "store";
    result.store = c10::make_intrusive<c10d::PrefixStore>(prefix, rendezvous_store_);
    result.is_store_private = first.loopback != 0;
  });
  result.address = store_address(result.store);
  return result;
}

void Reconfiguration::on_connected(const ReconfigureMembers& members) {
  self_.rank = members.rank;
  self_.uuid = members.uuid;
  exclusion_reason_.reset();
  const auto before = std::exchange(connected_members_, members);
  try {
    notify_excluded(before, members);
  } catch (const CommError& e) {
    base::log(base::LogLevel::kWarning,
              "excluded members of '" + name_ + "' could not be notified: " + e.what());
  }
}

// The first remaining member notifies the excluded ones for all remaining members, through its own
// store. The member that serves the store where they met may be among the excluded ones.
void Reconfiguration::notify_excluded(const ReconfigureMembers& before,
                                      const ReconfigureMembers& members) {
  const auto is_remaining = [&](const InitHandleInfo& member) {
    return std::any_of(members.handles.begin(), members.handles.end(),
                       [&](const auto& one) { return one.identity == member.identity; });
  };
  const auto first = std::find_if(before.handles.begin(), before.handles.end(), is_remaining);
  if (!rendezvous_store_ || first == before.handles.end() || first->identity != self_.identity)
    return;
  if (std::all_of(before.handles.begin(), before.handles.end(), is_remaining)) return;
  const Deadline deadline(kAfterErrorTimeout);
  const auto own = is_at_own_store(members.handles.front()) ? rendezvous_store_
                                                            : share_store(store_, deadline, {});
  StoreKeyValue store(own, deadline, {});
  for (const auto& member : before.handles)
    if (!is_remaining(member))
      store.set(member_key("left", member) + "/" + std::to_string(before.uuid),
                "the other members have excluded this one by reconfigure(uuid=" +
                    std::to_string(members.uuid) + ")");
}

// This member does not know which member remained first, so it asks the stores of the first members
// in order.
std::optional<std::string> Reconfiguration::find_exclusion_notice(const Context& context) const {
  const auto notice_key = member_key("left", self_) + "/" + std::to_string(connected_members_.uuid);
  const Deadline deadline(kAfterErrorTimeout);
  std::vector<InitHandleInfo> asked;
  for (const auto& member : connected_members_.handles) {
    const auto is_asked = [&](const auto& one) {
      return one.host.empty() || one.has_same_address(member);
    };
    const bool is_this_one = member.loopback != 0 && member.identity == self_.identity;
    if (is_this_one || std::any_of(asked.begin(), asked.end(), is_asked)) continue;
    if (asked.size() == kMaxQueriedStores || deadline.has_passed()) break;
    asked.push_back(member);
    try {
      StoreKeyValue store(connect_to_store(member, deadline, context), deadline, context);
      if (store.has({notice_key})) return store.get(notice_key, kAfterErrorTimeout);
    } catch (const CommError& e) {
      base::log(base::LogLevel::kDebug, e.what());
    }
  }
  return std::nullopt;
}

std::optional<CommError> Reconfiguration::check_excluded(const Context& context) {
  if (!exclusion_reason_ && connected_members_.size() > 1) try {
      exclusion_reason_ = find_exclusion_notice(context);
    } catch (const Interrupted& e) {
      e.rethrow_cause();
    }
  if (!exclusion_reason_) return std::nullopt;
  return CommError(Errc::kStaleGeneration,
                   *exclusion_reason_ + "; this member had joined by reconfigure(uuid=" +
                       std::to_string(connected_members_.uuid) +
                       "). It may take part in another reconfigure()",
                   context);
}

}  // namespace torch::comms
