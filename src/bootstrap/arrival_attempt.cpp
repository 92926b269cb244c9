#include "bootstrap/arrival_attempt.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include "base/os/secret.hpp"
#include "base/text/utf8.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

// How long rank 0 waits for the peers to read a failed result.
constexpr milliseconds kAcknowledgeTimeout{1000};

// How many ranks' backends are read from the store if the backends differ.
constexpr int kMaxComparedBackends = 1024;

// The arrival counter holds two sums, so that one store operation both counts a rank and compares
// its size with the others' sizes. The low bits count the ranks; the high bits sum their sizes. The
// counter of backends has the same form.
constexpr int kCountBits = 22;
static_assert(int64_t{kMaxRanks} < (int64_t{1} << kCountBits));
static_assert(int64_t{kMaxRanks} * kMaxRanks < (int64_t{1} << (62 - kCountBits)));

int64_t tally_entry(int64_t size) { return (size << kCountBits) + 1; }

std::string quoted(const std::string& name) { return "'" + name + "'"; }

// Maps a backend to a number that can be summed like a size: FNV-1a, folded. If two names had the
// same number, the mismatch would not be found here, but by a later check.
int64_t number_of(const std::string& backend) {
  uint32_t hash = 2166136261U;
  for (const char c : backend) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return (hash ^ (hash >> 19)) % kMaxRanks;
}

constexpr std::string_view kWith = " with backend '";

}  // namespace

std::string format_rank_count(int64_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

std::string AttemptResult::serialize() const {
  const auto number = kind == kSuccess ? "/" + std::to_string(identity) : "";
  return char(kind) + std::to_string(peer) + number + " " + text;
}

AttemptResult AttemptResult::parse(const std::string& stored, const std::string& address) {
  const auto space = stored.find(' ');
  const bool known = !stored.empty() && std::string("GTML").find(stored[0]) != std::string::npos;
  try {
    if (known && space != std::string::npos) {
      const auto first = stored.substr(1, space - 1);
      AttemptResult result{Kind(stored[0]), std::stoi(first), stored.substr(space + 1)};
      if (result.kind == kSuccess) result.identity = std::stoull(first.substr(first.find('/') + 1));
      return result;
    }
  } catch (const std::logic_error&) {
    // The number is missing: the error below.
  }
  throw CommError(Errc::kSystem, "the store " + address + " returned a text that no rank wrote: '" +
                                     std::string(base::utf8_prefix(stored, 80)) + "'");
}

ArrivalAttempt::ArrivalTally ArrivalAttempt::parse_tally(int64_t sum) {
  return {sum & ((int64_t{1} << kCountBits) - 1), sum >> kCountBits};
}

std::optional<AttemptResult> ArrivalAttempt::run() {
  try {
    return register_arrival();
  } catch (const std::exception& e) {
    publish_failure(e.what());
    throw;
  }
}

std::optional<AttemptResult> ArrivalAttempt::register_arrival() {
  if (self_.prepare) prepare();  // first: a rank that hangs in it has not arrived
  const bool is_duplicate = store_.add(rank_key(self_.rank), 1) != 1;
  if (has_ended()) {
    auto result = read_result();
    if (result.kind != AttemptResult::kMismatch || is_duplicate) return std::nullopt;
    return result;
  }
  if (is_duplicate) return publish_result([this] { return duplicate_rank_result(); });
  const auto with = self_.backend.empty() ? "" : std::string(kWith) + self_.backend + "'";
  store_.set(seen_key(self_.rank), quoted(self_.name) + with + ", " + self_.process_description);
  if (prepare_exception_)
    store_.set(key("unfit"),
               AttemptResult{AttemptResult::kPeerLeft, self_.rank, prepare_failed_}.serialize());
  return count_arrival();
}

// Runs the caller's prepare(). A rank whose prepare() fails arrives all the same, so that all ranks
// learn of the failure, however late they arrive.
void ArrivalAttempt::prepare() {
  try {
    self_.prepare();
  } catch (const CommError& e) {
    prepare_exception_ = std::current_exception();
    prepare_failed_ = "rank " + std::to_string(self_.rank) + " cannot take part: " + e.why();
    if (self_.report) self_.report(quoted(self_.name) + ": " + prepare_failed_);
  }
}

void ArrivalAttempt::rethrow_prepare_error() {
  if (!prepare_exception_) return;
  sync_before_raising();
  try {
    store_.remove(key("unfit"));
  } catch (const CommError&) {
    // The store was lost together with the peers.
  }
  std::rethrow_exception(prepare_exception_);
}

AttemptResult ArrivalAttempt::count_arrival() {
  const ArrivalTally now = parse_tally(store_.add(key("arrived"), tally_entry(self_.size)));
  if (now.total != now.ranks * self_.size)
    return publish_result([&] { return size_mismatch_result(now); });
  const int64_t backend = number_of(self_.backend);
  const ArrivalTally backends = parse_tally(store_.add(key("alike"), tally_entry(backend)));
  if (backends.ranks == self_.size)
    return publish_result([&] {
      if (backends.total != backends.ranks * backend) return backend_mismatch_result();
      if (self_.prepare && store_.has({key("unfit")}))
        return AttemptResult::parse(store_.get(key("unfit"), kWriteGrace), store_.address());
      return AttemptResult{AttemptResult::kSuccess, -1, format_rank_count(self_.size),
                           base::random_number()};
    });
  // The first rank that arrived logs the missing ranks after a while, because the timeout may be
  // many minutes.
  const bool reports_missing =
      now.ranks == 1 && self_.report && self_.report_after < self_.deadline.remaining();
  return wait_for_result(reports_missing);
}

void ArrivalAttempt::wait_then_report_missing() {
  try {
    store_.get(key("verdict"), self_.report_after);
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    report_missing_ranks();
  }
}

void ArrivalAttempt::report_missing_ranks() {
  const auto absent = missing_ranks();
  if (!absent.empty())
    self_.report("still waiting for " + format_ranks(absent, self_.size) + " to create " +
                 quoted(self_.name) + " after " + format_duration(self_.report_after) + " (store " +
                 store_.address() + ", timeout " + format_duration(self_.timeout.duration) + ")");
}

AttemptResult ArrivalAttempt::wait_for_result(bool reports_missing) {
  if (reports_missing && !self_.conflict_check) wait_then_report_missing();
  const auto when = std::chrono::steady_clock::now() + self_.report_after;
  while (self_.conflict_check && !self_.deadline.has_passed()) {
    if (has_ended()) return read_result();
    if (const auto why = self_.conflict_check())
      return publish_result([&] { return AttemptResult{AttemptResult::kMismatch, -1, *why}; });
    if (reports_missing && std::chrono::steady_clock::now() >= when) {
      reports_missing = false;
      report_missing_ranks();
    }
  }
  try {
    return AttemptResult::parse(store_.get(key("verdict"), self_.deadline.remaining()),
                                store_.address());
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout || !self_.deadline.has_passed()) throw;
  }
  return publish_result([this] { return timeout_result(); });
}

// Publishes the failure of this rank, which ends the attempt for all ranks.
void ArrivalAttempt::publish_failure(const std::string& why) noexcept {
  try {
    publish_result([&] {
      return AttemptResult{
          AttemptResult::kPeerLeft, self_.rank,
          "rank " + std::to_string(self_.rank) + " left before all ranks had arrived: " + why};
    });
  } catch (const std::exception&) {
    // The store is lost, too; the caller already raises the relevant error.
  }
}

void ArrivalAttempt::sync_before_raising() noexcept {
  try {
    if (self_.rank != 0) {
      const auto acknowledged = store_.add(key("heard"), 1);
      store_.set(key("heard/" + std::to_string(acknowledged)), "1");
      return;
    }
    const auto peer_count = parse_tally(store_.add(key("arrived"), 0)).ranks - 1;
    if (peer_count > 0) store_.get(key("heard/" + std::to_string(peer_count)), kAcknowledgeTimeout);
  } catch (const std::exception&) {
    // The result itself is the error that the caller raises.
  }
}

void ArrivalAttempt::remove_previous() {
  if (number_ == 0) return;
  const ArrivalAttempt previous(store_, self_, root_, number_ - 1);
  store_.remove(previous.rank_key(self_.rank));
  if (self_.rank == 0)
    for (const char* key_name : {"arrived", "alike", "claim", "verdict", "word"})
      store_.remove(previous.key(key_name));
}

// Ends the attempt with the result of `make()`, unless another rank ended it first. Returns: the
// result of the first rank.
AttemptResult ArrivalAttempt::publish_result(const std::function<AttemptResult()>& make) {
  if (store_.add(key("claim"), 1) != 1) return read_other_result();
  AttemptResult result = make();
  // A rank that sees the result must also see where the next attempt is, so `next` is written
  // first. After a mismatch `next` stays, so that ranks that arrive later find the mismatch.
  if (result.kind != AttemptResult::kMismatch)
    store_.set(root_ + "next", std::to_string(number_ + 1));
  store_.set(key("verdict"), result.serialize());
  return result;
}

AttemptResult ArrivalAttempt::read_other_result() {
  try {
    return read_result();
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    return {AttemptResult::kTimeout, -1,
            "not all ranks arrived in time, and the rank that noticed first ended before it "
            "published the missing ranks"};
  }
}

AttemptResult ArrivalAttempt::duplicate_rank_result() {
  const auto rank = std::to_string(self_.rank);
  const bool known = store_.has({seen_key(self_.rank)});
  const auto other = known ? store_.get(seen_key(self_.rank), kWriteGrace) : "unknown";
  return {AttemptResult::kMismatch, self_.rank,
          "rank " + rank + " is here twice: " + self_.process_description + " came while rank " +
              rank + " (" + other + ") was already waiting for " + quoted(self_.name) +
              ". Give every process its own rank; a store that outlived a killed job needs a "
              "fresh name, "
              "file or port"};
}

AttemptResult ArrivalAttempt::size_mismatch_result(const ArrivalTally& now) const {
  const int64_t peer_size = (now.total - self_.size) / std::max<int64_t>(now.ranks - 1, 1);
  return {AttemptResult::kMismatch, self_.rank,
          "the ranks of " + quoted(self_.name) + " disagree about their number: rank " +
              std::to_string(self_.rank) + " (" + self_.process_description + ") says " +
              format_rank_count(self_.size) + ", those before it said " +
              format_rank_count(peer_size)};
}

// Lists the backends with their ranks, those with the fewest ranks first.
AttemptResult ArrivalAttempt::backend_mismatch_result() {
  std::map<std::string, std::vector<int>> ranks_of;
  const int compared = std::min(self_.size, kMaxComparedBackends);
  for (int rank = 0; rank < compared; ++rank) ranks_of[backend_of(rank)].push_back(rank);
  if (self_.rank >= compared) ranks_of[self_.backend].push_back(self_.rank);
  std::vector<std::pair<std::string, std::vector<int>>> groups(ranks_of.begin(), ranks_of.end());
  std::ranges::sort(groups, {}, [](const auto& group) {
    return std::pair(group.second.size(), group.second[0]);
  });

  std::string text;
  for (const auto& [backend, ranks] : groups)
    text += (text.empty() ? "" : ", ") + format_ranks(ranks, self_.size) + " for " +
            (backend.empty() ? "an unknown backend" : quoted(backend));
  if (compared < self_.size)
    text += "; ranks from " + std::to_string(compared) + " on were not compared";
  const bool is_one =
      groups.size() > 1 && groups[0].second.size() == 1 && groups[1].second.size() > 1;
  return {AttemptResult::kMismatch, is_one ? groups[0].second[0] : -1,
          "the ranks of " + quoted(self_.name) + " ask for different backends: " + text};
}

// Returns the backend of `rank`; empty if that rank has created another communicator meanwhile.
std::string ArrivalAttempt::backend_of(int rank) {
  if (rank == self_.rank) return self_.backend;
  const auto seen = store_.get(seen_key(rank), kWriteGrace);
  const auto before = quoted(self_.name) + std::string(kWith);
  if (!seen.starts_with(before)) return {};
  return seen.substr(before.size(), seen.find('\'', before.size()) - before.size());
}

AttemptResult ArrivalAttempt::timeout_result() {
  const auto absent = missing_ranks();
  const std::string within = " within " + format_duration(self_.timeout.duration) +
                             " (the timeout of rank " + std::to_string(self_.rank) + ")";
  if (absent.empty())
    return {AttemptResult::kTimeout, -1,
            "not all ranks arrived" + within + "; the last ones were arriving at the deadline"};
  return {AttemptResult::kTimeout, absent.size() == 1 ? absent[0] : -1,
          format_ranks(absent, self_.size) + " did not arrive" + within + last_seen(absent) +
              other_world_hint()};
}

// Returns where some of the missing ranks were last seen on this store.
std::string ArrivalAttempt::last_seen(const std::vector<int>& absent) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(absent.size(), 4); ++i) {
    if (!store_.has({seen_key(absent[i])})) continue;
    text += "; rank " + std::to_string(absent[i]) + " was last seen creating " +
            store_.get(seen_key(absent[i]), kWriteGrace);
  }
  return text;
}

// Returns a hint if the last communicator of this name had another size. The cause is often a
// second job that uses the same store by mistake.
std::string ArrivalAttempt::other_world_hint() {
  if (number_ == 0) return {};
  const ArrivalAttempt previous(store_, self_, root_, number_ - 1);
  if (!store_.has({previous.key("verdict")})) return {};
  const auto result =
      AttemptResult::parse(store_.get(previous.key("verdict"), kWriteGrace), store_.address());
  if (result.kind != AttemptResult::kSuccess || result.text == format_rank_count(self_.size))
    return {};
  return "; the last communicator " + quoted(self_.name) + " in this store had " + result.text +
         ", this one expects " + format_rank_count(self_.size);
}

AttemptResult ArrivalAttempt::read_result() {
  return AttemptResult::parse(store_.get(key("verdict"), kWriteGrace), store_.address());
}

std::vector<int> ArrivalAttempt::missing_ranks() {
  return bootstrap::missing_ranks(store_, key("rank/"), self_.size);
}

}  // namespace torch::comms::bootstrap
