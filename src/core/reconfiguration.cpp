#include "core/reconfiguration.hpp"

#include <algorithm>
#include <thread>
#include <unordered_set>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/log.hpp"
#include "base/secret.hpp"
#include "core/bounded.hpp"
#include "core/claims.hpp"
#include "core/cpu_backend.hpp"
#include "core/explain.hpp"
#include "core/failed_work.hpp"
#include "core/making.hpp"
#include "core/member_store.hpp"
#include "core/own_check.hpp"
#include "core/store_adapter.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;
using Clock = Deadline::Clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kAfterErrorTimeout{500};  // with the store, where an error is known already
constexpr size_t kAskedStores = 4;               // by a member that may have been left out

// What passes the time of a member that waits: short pauses at first, longer ones later, and a look
// at the others' claims now and then.
class ClaimCheck {
 public:
  ClaimCheck(Claims& claims, Deadline deadline) : claims_(claims), deadline_(deadline) {}

  std::optional<std::string> operator()() {
    check_interrupt();
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin_);
    const auto pause = std::clamp(waited / 4, milliseconds(1), milliseconds(250));
    std::this_thread::sleep_for(std::min(pause, deadline_.remaining()));
    const auto now = Clock::now();
    if (now - looked_ < kBetweenLooks) return std::nullopt;
    looked_ = now;
    return claims_.doubt();
  }

 private:
  static constexpr milliseconds kBetweenLooks{100};
  Claims& claims_;
  Deadline deadline_;
  Clock::time_point begin_ = Clock::now(), looked_ = begin_;
};

}  // namespace

Reconfiguration::Reconfiguration(const std::string& backend, std::string name,
                                 const CommOptions& options)
    : name_(std::move(name)), timeout_(usable_timeout(options.timeout)) {
  self_.backend = backend;
  self_.identity = base::random_number();
  store_ = open_member_store(name_, options, self_);
}

Reconfiguration& Reconfiguration::of(const std::unique_ptr<Reconfiguration>& its,
                                     const Context& context) {
  if (its) return *its;
  throw CommError(Errc::kUnsupported,
                  "the communicator was made without enable_reconfigure=True, so its members are "
                  "for good",
                  context);
}

Members Reconfiguration::members(const ReconfigureOptions& options, milliseconds timeout) const {
  const auto refuse = [&](const std::string& why) {
    return CommError(Errc::kInvalidArgument, why, {.op = "reconfigure", .comm = name_});
  };
  if (options.timeout && (options.timeout->count() <= 0 || *options.timeout > kLongestLimit))
    throw refuse("timeout is " + std::to_string(options.timeout->count()) +
                 " ms; it must be positive, and up to 1e9 seconds");
  if (used_.contains(options.uuid))
    throw refuse("uuid " + std::to_string(options.uuid) +
                 " was used before on this communicator; every reconfigure() needs another one, "
                 "the same for all members");
  Members members;
  members.aborts = aborts_.load();
  members.uuid = options.uuid;
  const auto* list = std::get_if<std::vector<InitHandle>>(&options.handles);
  const auto* set = std::get_if<std::unordered_set<InitHandle>>(&options.handles);
  try {
    if (list != nullptr)
      for (const auto& text : *list)
        members.handles.push_back(parse_member_handle(text, self_.backend));
    else
      for (const auto& text : *set)
        members.handles.push_back(parse_member_handle(text, self_.backend));
  } catch (const CommError& e) {
    throw refuse(e.why());
  }
  if (set != nullptr) std::sort(members.handles.begin(), members.handles.end(), comes_before);
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < members.handles.size(); ++i) {
    const auto& handle = members.handles[i];
    if (!seen.insert(handle.identity).second)
      throw refuse("init_handles has one member twice: " + handle.text());
    if (handle.identity == self_.identity) members.rank = static_cast<int>(i);
  }
  if (members.rank < 0)
    throw refuse("this member's own handle (" + handle() + ") is not among the " +
                 std::to_string(members.handles.size()) + " init_handles");
  members.limit = {options.timeout.value_or(timeout),
                   options.timeout ? "timeout= of reconfigure"
                                   : "timeout= of reconfigure, or the communicator's"};
  require_reachable(members, store_, {.op = "reconfigure", .comm = name_});
  return members;
}

Reconfiguration::Fewer Reconfiguration::fewer(const Members& members) const {
  const auto not_because = [](const std::string& why) { return Fewer{{}, {}, why}; };
  if (last_.size() < 2) return not_because("this member was connected with no others");
  const auto& first = last_.handles.front();
  Fewer fewer{.of = std::to_string(last_.uuid) + "/" + std::to_string(first.identity),
              .gone = {},
              .why_not = {}};
  int at = 0;
  for (const auto& member : members.handles) {
    const auto is_it = [&] {
      return last_.handles[static_cast<size_t>(at)].identity == member.identity;
    };
    while (at < last_.size() && !is_it()) fewer.gone.push_back(at++);
    if (at++ == last_.size())
      return not_because(member.text() + " was none of the members before, or has another place");
  }
  while (at < last_.size()) fewer.gone.push_back(at++);
  if (fewer.gone.empty()) return not_because("nobody leaves");
  return fewer;
}

bool Reconfiguration::is_at_own_store(const MemberHandle& member) const noexcept {
  return member.host.empty() || member.shares_address(self_);
}

StorePtr Reconfiguration::reach(const MemberHandle& member, Deadline deadline,
                                const Context& context) const {
  if (!is_at_own_store(member)) return join_member_store(member, timeout_, deadline, context);
  auto connection = share_store(store_, deadline, context);
  connection->setTimeout(timeout_);
  return connection;
}

bootstrap::ArrivalBarrierResult Reconfiguration::arrive(const Members& members, Deadline deadline) {
  StoreKeyValue store(met_, deadline, {});
  Claims claims(store, members);
  return bootstrap::wait_for_all_ranks(
      store,
      {.key_scope = kMembersScope,
       .name = "uuid " + std::to_string(members.uuid) + " of list " + std::to_string(claims.list()),
       .rank = members.rank,
       .size = members.size(),
       .process_description = "'" + name_ + "' in " + process_name(),
       .timeout = members.limit,
       .deadline = deadline,
       .conflict_check = ClaimCheck(claims, deadline)});
}

WorkPtr Reconfiguration::run(const Members& members,
                             const std::function<void(const Rendezvous&)>& connect) {
  const Making making(name_, self_.backend, members);
  WorkPtr work;
  try {
    try {
      {
        const OwnCheck check([&] { require_not_aborted(members); });
        connect(meet(members));
      }
      require_not_aborted(members);
      connected(members);
      work = completedWork();
    } catch (const Interrupted& e) {
      e.rethrow_cause();
    }
  } catch (const CommError& e) {
    work = c10::make_intrusive<FailedWork>(e);
  }
  met_.reset();
  return work;
}

void Reconfiguration::require_not_aborted(const Members& members) const {
  if (aborts_.load() == members.aborts) return;
  throw CommError(Errc::kAborted, "abort() was called",
                  {.op = "reconfigure", .comm = name_, .rank = members.rank});
}

Rendezvous Reconfiguration::meet(const Members& members) {
  used_.insert(members.uuid);
  const Context context{.op = "reconfigure", .comm = name_, .rank = members.rank};
  const Deadline deadline(members.limit.duration);
  const auto& first = members.handles.front();
  Rendezvous result{.rank = members.rank,
                    .size = members.size(),
                    .source = "reconfigure(uuid=" + std::to_string(members.uuid) + ")",
                    .store = {},
                    .phases = {},
                    .address = {},
                    .limit = members.limit,
                    .deadline = deadline,
                    .op = "reconfigure",
                    .identity = members.identity()};
  const auto phase = [&](const char* name, const auto& part) {
    const auto begin = Clock::now();
    try {
      part();
    } catch (const CommError& e) {
      std::string why = std::string("phase '") + name + "': " + e.why();
      if (e.code() == Errc::kTimeout && why.find(members.limit.setting) == std::string::npos)
        why += ". The limit is " + bootstrap::format_duration(members.limit.duration) +
               "; if it only needs longer, raise " + members.limit.setting;
      auto where = context.blaming(e.context());
      // A store that a member serves is lost with that member.
      const bool is_store_lost = e.code() == Errc::kPeerFailed || e.code() == Errc::kTimeout;
      if (is_store_lost && where.peer < 0 && members.rank > 0 && first.loopback != 0)
        where.peer = 0;
      where.limit = members.limit.duration;
      throw CommError(e.code(), why, where);
    }
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    result.phases.push_back({name, took.count()});
  };
  if (members.size() == 1) {
    // Alone it needs no store; those it leaves, and those that wait for it, may be told, if there
    // is one.
    try {
      const Deadline patience(std::min(kAfterErrorTimeout, deadline.remaining()));
      met_ = reach(self_, patience, context);
      StoreKeyValue store(met_, patience, context);
      Claims::claim_alone(store, members);
    } catch (const CommError& e) {
      base::log(base::LogLevel::kInfo, e.what());
    }
    result.store = c10::make_intrusive<c10d::HashStore>();
    result.address = store_address(result.store);
    return result;
  }
  phase("store", [&] { met_ = reach(first, deadline, context); });
  phase("arrive", [&] {
    const auto prefix = arrive(members, deadline).key_prefix + "store";
    result.store = c10::make_intrusive<c10d::PrefixStore>(prefix, met_);
    result.is_private = first.loopback != 0;
  });
  result.address = store_address(result.store);
  return result;
}

void Reconfiguration::connected(const Members& members) {
  self_.rank = members.rank;
  self_.uuid = members.uuid;
  stale_.reset();
  const auto before = std::exchange(last_, members);
  try {
    tell_left_out(before, members);
  } catch (const CommError& e) {
    base::log(base::LogLevel::kWarning,
              "members that were left out of '" + name_ + "' could not be told: " + e.what());
  }
}

// By the first one that stays, for all that do, at the store that it brings. The one that serves
// the store where they met may be among those that leave.
void Reconfiguration::tell_left_out(const Members& before, const Members& members) {
  const auto stays = [&](const MemberHandle& member) {
    return std::any_of(members.handles.begin(), members.handles.end(),
                       [&](const auto& one) { return one.identity == member.identity; });
  };
  const auto first = std::find_if(before.handles.begin(), before.handles.end(), stays);
  if (!met_ || first == before.handles.end() || first->identity != self_.identity) return;
  if (std::all_of(before.handles.begin(), before.handles.end(), stays)) return;
  const Deadline deadline(kAfterErrorTimeout);
  const auto own =
      is_at_own_store(members.handles.front()) ? met_ : share_store(store_, deadline, {});
  StoreKeyValue store(own, deadline, {});
  for (const auto& member : before.handles)
    if (!stays(member))
      store.set(member_key("left", member) + "/" + std::to_string(before.uuid),
                "the other members have gone on without this one, by reconfigure(uuid=" +
                    std::to_string(members.uuid) + ")");
}

// The first one that stays is not known here: each of the first members is asked, by their order.
std::optional<std::string> Reconfiguration::ask_members(const Context& context) const {
  const auto told = member_key("left", self_) + "/" + std::to_string(last_.uuid);
  const Deadline deadline(kAfterErrorTimeout);
  std::vector<MemberHandle> asked;
  for (const auto& member : last_.handles) {
    const auto is_asked = [&](const auto& one) {
      return one.host.empty() || one.shares_address(member);
    };
    const bool is_this_one = member.loopback != 0 && member.identity == self_.identity;
    if (is_this_one || std::any_of(asked.begin(), asked.end(), is_asked)) continue;
    if (asked.size() == kAskedStores || deadline.has_passed()) break;
    asked.push_back(member);
    try {
      StoreKeyValue store(reach(member, deadline, context), deadline, context);
      if (store.has({told})) return store.get(told, kAfterErrorTimeout);
    } catch (const CommError& e) {
      base::log(base::LogLevel::kDebug, e.what());
    }
  }
  return std::nullopt;
}

std::optional<CommError> Reconfiguration::left_out(const Context& context) {
  if (!stale_ && last_.size() > 1) try {
      stale_ = ask_members(context);
    } catch (const Interrupted& e) {
      e.rethrow_cause();
    }
  if (!stale_) return std::nullopt;
  return CommError(Errc::kStaleGeneration,
                   *stale_ + "; this one had joined by reconfigure(uuid=" +
                       std::to_string(last_.uuid) + "). It can take part in another reconfigure()",
                   context);
}

}  // namespace torch::comms
