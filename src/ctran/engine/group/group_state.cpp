#include "ctran/engine/group/group_state.hpp"

#include <algorithm>

namespace torch::comms::ctran {
namespace {

CollectivePlan::GroupLayout layout_of(const LinkTable& table, const std::vector<int>& ranks) {
  CollectivePlan::GroupLayout layout;
  layout.size = static_cast<int>(ranks.size());
  layout.rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), table.rank()) - ranks.begin());
  const auto host_of_first = [&](int rank) { return table.is_same_host(ranks[0], rank); };
  const auto first = std::find_if_not(ranks.begin(), ranks.end(), host_of_first);
  layout.is_one_host = first == ranks.end();
  // Checks whether the ranks are ordered by host, with equally many on each.
  const auto local = static_cast<size_t>(first - ranks.begin());
  bool regular = ranks.size() % local == 0;
  for (size_t i = 0; regular && i < ranks.size(); ++i) {
    const bool begins = i % local == 0;
    regular = begins ? i == 0 || !table.is_same_host(ranks[i - 1], ranks[i])
                     : table.is_same_host(ranks[i - 1], ranks[i]);
  }
  layout.local_size = regular ? static_cast<int>(local) : 1;
  return layout;
}

}  // namespace

GroupState::GroupState(std::shared_ptr<Engine> owner, std::string group_name,
                       std::vector<int> members, uint32_t first_stream)
    : engine(std::move(owner)),
      name(std::move(group_name)),
      ranks(std::move(members)),
      base(first_stream),
      layout(layout_of(engine->link_table(), ranks)) {}

int GroupState::rank_of(int context_rank) const noexcept {
  const auto found = std::find(ranks.begin(), ranks.end(), context_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

void GroupState::require_usable(std::string_view op) const {
  engine->require_own_process(op);
  if (const auto* error = failure())
    throw CommError(error->code(), error->why(),
                    Context{.op = std::string(op), .comm = name, .rank = layout.rank}.blaming(
                        error->context()));
}

void GroupState::request_abort(const CommError& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (!abort_) abort_ = why;
}

std::optional<CommError> GroupState::requested_abort() {
  const std::lock_guard lock(mutex_);
  return abort_;
}

std::shared_ptr<const CollectivePlan> GroupState::plan(const EngineCall& call) {
  {
    const std::lock_guard lock(mutex_);
    if (auto found = plans_.find(call)) return found;
  }
  auto created = std::make_shared<const CollectivePlan>(call, layout, engine->chooser());
  const std::lock_guard lock(mutex_);
  plans_.add(created);
  return created;
}

FastPath* GroupState::fast_path(const EngineCall& call) {
  const auto fits = [&](const CachedFastPath& known) { return known.plan->matches(call); };
  if (last_fast_path_ < fast_paths_.size() && fits(fast_paths_[last_fast_path_]))
    return fast_paths_[last_fast_path_].fast_path.get();
  if (const auto found = std::ranges::find_if(fast_paths_, fits); found != fast_paths_.end()) {
    last_fast_path_ = static_cast<size_t>(found - fast_paths_.begin());
    return found->fast_path.get();
  }
  std::shared_ptr<const CollectivePlan> plan;
  {
    const std::lock_guard lock(mutex_);
    plan = plans_.find(call);
  }
  if (!plan) return nullptr;
  CachedFastPath known{plan, FastPath::create(*this, plan)};
  if (fast_paths_.size() < kMaxFastPaths) {
    fast_paths_.push_back(std::move(known));
    last_fast_path_ = fast_paths_.size() - 1;
  } else {
    last_fast_path_ = (last_fast_path_ + 1) % kMaxFastPaths;
    fast_paths_[last_fast_path_] = std::move(known);
  }
  return fast_paths_[last_fast_path_].fast_path.get();
}

bool GroupState::set_failure(Errc code, std::string why, std::vector<int> culprits) noexcept {
  if (failure() != nullptr) return false;
  failure_owner_ = std::make_unique<const CommError>(
      code, std::move(why),
      Context{.comm = name, .rank = layout.rank, .culprits = std::move(culprits)});
  failure_.store(failure_owner_.get(), std::memory_order_release);
  return true;
}

std::unique_ptr<CommError> GroupState::error_for(const Task& task) const {
  const auto& error = *failure();
  const Context call_context{.op = std::string(task.name),
                             .comm = name,
                             .rank = layout.rank,
                             .seq = task.is_queued ? task.sequence : task.call_number,
                             .limit = task.timeout.duration};
  return std::make_unique<CommError>(error.code(), error.why(),
                                     call_context.blaming(error.context()));
}

const Fingerprint& GroupState::fingerprint(uint64_t number) const noexcept {
  const auto& recorded = fingerprints_[number % kFingerprints];
  return recorded.sequence == number
             ? recorded
             : fingerprints_[sequence.load(std::memory_order_relaxed) % kFingerprints];
}

std::string GroupState::describe_count_mismatch(int rank, const ControlMessage& query) const {
  const auto& exchange = own_count_plans_[query.sequence % kFingerprints];
  if (!exchange) return {};
  const auto& problem = exchange->problem();
  const auto describe = [&](int to, int64_t expected, int from, int64_t sent) {
    const auto bytes = [&](int64_t count) {
      return std::to_string(count * exchange->element_bytes());
    };
    return "rank " + std::to_string(to) + " expects " + bytes(expected) + " bytes of rank " +
           std::to_string(from) + ", which sends " + bytes(sent);
  };
  const int64_t sent = problem.blocks.count(rank), awaited = problem.receive_blocks.count(rank);
  if (query.expected != sent) return describe(rank, query.expected, layout.rank, sent);
  if (query.sent != awaited) return describe(layout.rank, awaited, rank, query.sent);
  return {};
}

std::string GroupState::describe_stale_message(uint32_t tag) const {
  const std::string self = "rank " + std::to_string(layout.rank);
  for (const auto& recorded : fingerprints_) {
    if (recorded.sequence == 0) continue;
    auto theirs = recorded;
    const auto fits = [&] {
      return tag_of(theirs.hash_without_sequence(), recorded.sequence, base) == tag;
    };
    if (fits())
      return self + " received a message of " + theirs.format() + ", which " + self +
             " had already completed";
    for (int root = 0; recorded.root >= 0 && root < size(); ++root) {
      theirs.root = root;
      if (fits())
        return self + " received a message of " + theirs.format() + ", which " + self +
               " called with root " + std::to_string(recorded.root);
    }
  }
  return {};
}

monitor::MonitorProtocol& GroupState::monitor() {
  if (monitor_) return *monitor_;
  const monitor::MonitorProtocol::MonitoredGroup group{
      .id = base, .rank = layout.rank, .size = size(), .topology = engine->monitor_topology()};
  monitor_.reset(new monitor::MonitorProtocol(group, *this, *this, engine->monitor_retry_policy()));
  for (const auto& [rank, leave] : left_members) monitor_->on_peer_closed(rank);
  return *monitor_;
}

monitor::RankStatus GroupState::status_of(uint64_t number) const {
  monitor::RankStatus status{.progress = progress()};
  for (auto& recorded : status.fingerprints) {
    if (number == 0) break;
    if (fingerprint(number).sequence == number) recorded = fingerprint(number);
    --number;
  }
  return status;
}

void GroupState::send(int rank, const monitor::MonitorMessage& message) {
  engine->send_monitor_message(ranks[static_cast<size_t>(rank)], base, message);
}

monitor::Moment GroupState::now() const noexcept {
  return std::chrono::steady_clock::now().time_since_epoch();
}

RankProgress GroupState::progress() const noexcept {
  const uint64_t called = sequence.load(std::memory_order_relaxed);
  return {.called = called,
          .finished = last_finished,
          .fingerprint = fingerprint(called > last_finished ? last_finished + 1 : last_finished),
          .p2p_started = p2p_started_,
          .p2p_finished = p2p_finished_,
          .last_p2p = last_p2p_call_};
}

}  // namespace torch::comms::ctran
