#include "ctran/engine/membership.hpp"

#include <algorithm>

namespace torch::comms::ctran {
namespace {

Plan::Place place_of(const LinkTable& table, const std::vector<int>& ranks) {
  Plan::Place place;
  place.size = static_cast<int>(ranks.size());
  place.rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), table.rank()) - ranks.begin());
  const auto host_of_first = [&](int rank) { return table.same_host(ranks[0], rank); };
  const auto first = std::find_if_not(ranks.begin(), ranks.end(), host_of_first);
  place.one_host = first == ranks.end();
  // Host by host, equally many on each?
  const auto local = static_cast<size_t>(first - ranks.begin());
  bool regular = ranks.size() % local == 0;
  for (size_t i = 0; regular && i < ranks.size(); ++i) {
    const bool begins = i % local == 0;
    regular = begins ? i == 0 || !table.same_host(ranks[i - 1], ranks[i])
                     : table.same_host(ranks[i - 1], ranks[i]);
  }
  place.local_size = regular ? static_cast<int>(local) : 1;
  return place;
}

}  // namespace

Membership::Membership(std::shared_ptr<Engine> owner, std::string called, std::vector<int> members,
                       uint32_t first_stream)
    : engine(std::move(owner)),
      name(std::move(called)),
      ranks(std::move(members)),
      base(first_stream),
      place(place_of(engine->table(), ranks)) {}

int Membership::rank_of(int family_rank) const noexcept {
  const auto found = std::find(ranks.begin(), ranks.end(), family_rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

void Membership::require_usable(std::string_view op) const {
  engine->require_own_process(op);
  if (const auto* error = failure())
    throw CommError(
        error->code(), error->why(),
        Context{.op = std::string(op), .comm = name, .rank = place.rank}.blaming(error->context()));
}

void Membership::request_abort(const CommError& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (!abort_) abort_ = why;
}

std::optional<CommError> Membership::requested_abort() {
  const std::lock_guard lock(mutex_);
  return abort_;
}

std::shared_ptr<const Plan> Membership::plan(const Call& call) {
  {
    const std::lock_guard lock(mutex_);
    if (auto found = plans_.find(call)) return found;
  }
  auto made = std::make_shared<const Plan>(call, place, engine->choose());
  const std::lock_guard lock(mutex_);
  plans_.add(made);
  return made;
}

Express* Membership::express(const Call& call) {
  const auto fits = [&](const Known& known) { return known.plan->fits(call); };
  if (last_express_ < express_.size() && fits(express_[last_express_]))
    return express_[last_express_].express.get();
  if (const auto found = std::ranges::find_if(express_, fits); found != express_.end()) {
    last_express_ = static_cast<size_t>(found - express_.begin());
    return found->express.get();
  }
  std::shared_ptr<const Plan> plan;
  {
    const std::lock_guard lock(mutex_);
    plan = plans_.find(call);
  }
  if (!plan) return nullptr;
  Known known{plan, Express::make(*this, plan)};
  if (express_.size() < kMostExpress) {
    express_.push_back(std::move(known));
    last_express_ = express_.size() - 1;
  } else {
    last_express_ = (last_express_ + 1) % kMostExpress;
    express_[last_express_] = std::move(known);
  }
  return express_[last_express_].express.get();
}

bool Membership::set_failure(Errc code, std::string why, std::vector<int> culprits) noexcept {
  if (failure() != nullptr) return false;
  failure_owner_ = std::make_unique<const CommError>(
      code, std::move(why),
      Context{.comm = name, .rank = place.rank, .culprits = std::move(culprits)});
  failure_.store(failure_owner_.get(), std::memory_order_release);
  return true;
}

std::unique_ptr<CommError> Membership::error_for(const Task& task) const {
  const auto& error = *failure();
  const Context place_of_task{.op = std::string(task.name),
                              .comm = name,
                              .rank = place.rank,
                              .seq = task.queued ? task.sequence : task.number,
                              .limit = task.limit.duration};
  return std::make_unique<CommError>(error.code(), error.why(),
                                     place_of_task.blaming(error.context()));
}

const Fingerprint& Membership::fingerprint(uint64_t number) const noexcept {
  const auto& print = prints_[number % kPrints];
  return print.sequence == number ? print
                                  : prints_[sequence.load(std::memory_order_relaxed) % kPrints];
}

std::string Membership::other_counts(int rank, const Notice& question) const {
  const auto& exchange = exchanges_[question.sequence % kPrints];
  if (!exchange) return {};
  const auto& problem = exchange->problem();
  const auto words = [&](int to, int64_t expected, int from, int64_t sent) {
    const auto bytes = [&](int64_t count) {
      return std::to_string(count * exchange->element_bytes());
    };
    return "rank " + std::to_string(to) + " expects " + bytes(expected) + " bytes of rank " +
           std::to_string(from) + ", which sends " + bytes(sent);
  };
  const int64_t sent = problem.blocks.count(rank), awaited = problem.receive_blocks.count(rank);
  if (question.awaited != sent) return words(rank, question.awaited, place.rank, sent);
  if (question.sent != awaited) return words(place.rank, awaited, rank, question.sent);
  return {};
}

std::string Membership::left_over(uint32_t tag) const {
  const std::string self = "rank " + std::to_string(place.rank);
  for (const auto& print : prints_) {
    if (print.sequence == 0) continue;
    auto theirs = print;
    const auto fits = [&] {
      return tag_of(theirs.hash_without_sequence(), print.sequence, base) == tag;
    };
    if (fits()) return self + " met a message of " + theirs.format() + ", which had ended there";
    for (int root = 0; print.root >= 0 && root < size(); ++root) {
      theirs.root = root;
      if (fits())
        return self + " met a message of " + theirs.format() + ", which it called with root " +
               std::to_string(print.root);
    }
  }
  return {};
}

RankProgress Membership::whereabouts() const noexcept {
  const uint64_t called = sequence.load(std::memory_order_relaxed);
  return {.called = called,
          .finished = finished,
          .fingerprint = fingerprint(called > finished ? finished + 1 : finished),
          .p2p_started = asides_called_,
          .p2p_finished = asides_finished_,
          .last_p2p = last_aside_};
}

}  // namespace torch::comms::ctran
