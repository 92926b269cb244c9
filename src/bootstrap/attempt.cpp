#include "bootstrap/attempt.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include "base/secret.hpp"
#include "base/utf8.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

// How long rank 0 waits for the others to read a bad verdict.
constexpr milliseconds kFarewell{1000};

// How many ranks' backends are read where they differ.
constexpr int kLooked = 1024;

// The counter of arrivals holds two sums at once, so that one message both counts a rank and
// compares its size with everybody's: the ranks in the low bits, their sizes above. Likewise that
// of backends.
constexpr int kCountBits = 22;
static_assert(int64_t{kMaxRanks} < (int64_t{1} << kCountBits));
static_assert(int64_t{kMaxRanks} * kMaxRanks < (int64_t{1} << (62 - kCountBits)));

int64_t share(int64_t size) { return (size << kCountBits) + 1; }

std::string quoted(const std::string& name) { return "'" + name + "'"; }

// A backend as a number that can be summed like a size: FNV-1a, folded. Should two names share one,
// their ranks meet, and part later.
int64_t number_of(const std::string& backend) {
  uint32_t hash = 2166136261U;
  for (const char c : backend) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return (hash ^ (hash >> 19)) % kMaxRanks;
}

constexpr std::string_view kWith = " with backend '";

}  // namespace

std::string count_ranks(int64_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

std::string Verdict::stored() const {
  const auto number = kind == kGo ? "/" + std::to_string(identity) : "";
  return char(kind) + std::to_string(peer) + number + " " + text;
}

Verdict Verdict::parse(const std::string& stored, const std::string& address) {
  const auto space = stored.find(' ');
  const bool known = !stored.empty() && std::string("GTML").find(stored[0]) != std::string::npos;
  try {
    if (known && space != std::string::npos) {
      const auto first = stored.substr(1, space - 1);
      Verdict verdict{Kind(stored[0]), std::stoi(first), stored.substr(space + 1)};
      if (verdict.kind == kGo) verdict.identity = std::stoull(first.substr(first.find('/') + 1));
      return verdict;
    }
  } catch (const std::logic_error&) {
    // Not a number: told below.
  }
  throw CommError(Errc::kSystem, "the store " + address + " returned a text that no rank wrote: '" +
                                     std::string(base::utf8_prefix(stored, 80)) + "'");
}

Attempt::Tally Attempt::tally(int64_t sum) {
  return {sum & ((int64_t{1} << kCountBits) - 1), sum >> kCountBits};
}

std::optional<Verdict> Attempt::take_part() {
  try {
    return enter();
  } catch (const std::exception& e) {
    leave(e.what());
    throw;
  }
}

std::optional<Verdict> Attempt::enter() {
  if (self_.bring) bring();  // first: whoever does not come back from it has not come
  const bool again = store_.add(rank_key(self_.rank), 1) != 1;
  if (has_ended()) {
    auto verdict = read_verdict();
    if (verdict.kind != Verdict::kMismatch || again) return std::nullopt;
    return verdict;
  }
  if (again) return decide([this] { return twice(); });
  const auto with = self_.backend.empty() ? "" : std::string(kWith) + self_.backend + "'";
  store_.set(seen_key(self_.rank), quoted(self_.name) + with + ", " + self_.who);
  if (failure_) store_.set(key("unfit"), Verdict{Verdict::kLeft, self_.rank, unfit_}.stored());
  return arrive();
}

// Who lacks something comes all the same: so all hear of it, whenever they come.
void Attempt::bring() {
  try {
    self_.bring();
  } catch (const CommError& e) {
    failure_ = std::current_exception();
    unfit_ = "rank " + std::to_string(self_.rank) + " cannot take part: " + e.why();
    if (self_.notice) self_.notice(quoted(self_.name) + ": " + unfit_);
  }
}

void Attempt::raise_failure() {
  if (!failure_) return;
  part();
  try {
    store_.remove(key("unfit"));
  } catch (const CommError&) {
    // The store has gone with the others.
  }
  std::rethrow_exception(failure_);
}

Verdict Attempt::arrive() {
  const Tally now = tally(store_.add(key("arrived"), share(self_.size)));
  if (now.total != now.ranks * self_.size) return decide([&] { return other_size(now); });
  const int64_t backend = number_of(self_.backend);
  const Tally alike = tally(store_.add(key("alike"), share(backend)));
  if (alike.ranks == self_.size)
    return decide([&] {
      if (alike.total != alike.ranks * backend) return other_backend();
      if (self_.bring && store_.has({key("unfit")}))
        return Verdict::parse(store_.get(key("unfit"), kGrace), store_.address());
      return Verdict{Verdict::kGo, -1, count_ranks(self_.size), base::random_number()};
    });
  // The first rank here says so if the others take long; the limit may be many minutes.
  const bool reminds = now.ranks == 1 && self_.notice && self_.patience < self_.deadline.left();
  return await(reminds);
}

void Attempt::remind() {
  try {
    store_.get(key("verdict"), self_.patience);
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    say_who_is_missing();
  }
}

void Attempt::say_who_is_missing() {
  const auto absent = missing();
  if (!absent.empty())
    self_.notice("still waiting for " + name_ranks(absent, self_.size) + " to create " +
                 quoted(self_.name) + " after " + to_text(self_.patience) + " (store " +
                 store_.address() + ", limit " + to_text(self_.limit.duration) + ")");
}

Verdict Attempt::await(bool reminds) {
  if (reminds && !self_.doubt) remind();
  const auto when = std::chrono::steady_clock::now() + self_.patience;
  while (self_.doubt && !self_.deadline.passed()) {
    if (has_ended()) return read_verdict();
    if (const auto why = self_.doubt())
      return decide([&] { return Verdict{Verdict::kMismatch, -1, *why}; });
    if (reminds && std::chrono::steady_clock::now() >= when) {
      reminds = false;
      say_who_is_missing();
    }
  }
  try {
    return Verdict::parse(store_.get(key("verdict"), self_.deadline.left()), store_.address());
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout || !self_.deadline.passed()) throw;
  }
  return decide([this] { return late(); });
}

// The last word for this rank, if no verdict came because of an error on this side.
void Attempt::leave(const std::string& why) noexcept {
  try {
    decide([&] {
      return Verdict{
          Verdict::kLeft, self_.rank,
          "rank " + std::to_string(self_.rank) + " left before all ranks were here: " + why};
    });
  } catch (const std::exception&) {
    // The store is gone, too; the caller is already raising the error that matters.
  }
}

void Attempt::part() noexcept {
  try {
    if (self_.rank != 0) {
      const auto heard = store_.add(key("heard"), 1);
      store_.set(key("heard/" + std::to_string(heard)), "1");
      return;
    }
    const auto others = tally(store_.add(key("arrived"), 0)).ranks - 1;
    if (others > 0) store_.get(key("heard/" + std::to_string(others)), kFarewell);
  } catch (const std::exception&) {
    // The verdict itself is the error to raise.
  }
}

void Attempt::remove_previous() {
  if (number_ == 0) return;
  const Attempt previous(store_, self_, root_, number_ - 1);
  store_.remove(previous.rank_key(self_.rank));
  if (self_.rank == 0)
    for (const char* word : {"arrived", "alike", "claim", "verdict", "word"})
      store_.remove(previous.key(word));
}

// Ends the attempt with `make()`, unless another rank was first: then its verdict counts.
Verdict Attempt::decide(const std::function<Verdict()>& make) {
  if (store_.add(key("claim"), 1) != 1) return verdict_of_another();
  Verdict verdict = make();
  // Whoever sees the verdict must also see where the next attempt is. A mismatch stays to be
  // found by the ranks that are still to come.
  if (verdict.kind != Verdict::kMismatch) store_.set(root_ + "next", std::to_string(number_ + 1));
  store_.set(key("verdict"), verdict.stored());
  return verdict;
}

Verdict Attempt::verdict_of_another() {
  try {
    return read_verdict();
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    return {Verdict::kTimeout, -1,
            "not all ranks arrived in time, and the rank that saw it first ended before it could "
            "say more"};
  }
}

Verdict Attempt::twice() {
  const auto rank = std::to_string(self_.rank);
  const bool known = store_.has({seen_key(self_.rank)});
  const auto other = known ? store_.get(seen_key(self_.rank), kGrace) : "unknown";
  return {Verdict::kMismatch, self_.rank,
          "rank " + rank + " is here twice: " + self_.who + " came while rank " + rank + " (" +
              other + ") was already waiting for " + quoted(self_.name) +
              ". Give every process its own rank; a store that outlived a killed job needs a "
              "fresh name, "
              "file or port"};
}

Verdict Attempt::other_size(const Tally& now) const {
  const int64_t others = (now.total - self_.size) / std::max<int64_t>(now.ranks - 1, 1);
  return {Verdict::kMismatch, self_.rank,
          "the ranks of " + quoted(self_.name) + " disagree about their number: rank " +
              std::to_string(self_.rank) + " (" + self_.who + ") says " + count_ranks(self_.size) +
              ", those before it said " + count_ranks(others)};
}

// Those that fewer ask for come first.
Verdict Attempt::other_backend() {
  std::map<std::string, std::vector<int>> ranks_of;
  const int looked = std::min(self_.size, kLooked);
  for (int rank = 0; rank < looked; ++rank) ranks_of[backend_of(rank)].push_back(rank);
  if (self_.rank >= looked) ranks_of[self_.backend].push_back(self_.rank);
  std::vector<std::pair<std::string, std::vector<int>>> groups(ranks_of.begin(), ranks_of.end());
  std::ranges::sort(groups, {}, [](const auto& group) {
    return std::pair(group.second.size(), group.second[0]);
  });

  std::string text;
  for (const auto& [backend, ranks] : groups)
    text += (text.empty() ? "" : ", ") + name_ranks(ranks, self_.size) + " for " +
            (backend.empty() ? "one that is not known" : quoted(backend));
  if (looked < self_.size)
    text += "; the others from " + std::to_string(looked) + " on were not asked";
  const bool is_one =
      groups.size() > 1 && groups[0].second.size() == 1 && groups[1].second.size() > 1;
  return {Verdict::kMismatch, is_one ? groups[0].second[0] : -1,
          "the ranks of " + quoted(self_.name) + " ask for different backends: " + text};
}

// Empty where that rank has created something else meanwhile.
std::string Attempt::backend_of(int rank) {
  if (rank == self_.rank) return self_.backend;
  const auto seen = store_.get(seen_key(rank), kGrace);
  const auto before = quoted(self_.name) + std::string(kWith);
  if (!seen.starts_with(before)) return {};
  return seen.substr(before.size(), seen.find('\'', before.size()) - before.size());
}

Verdict Attempt::late() {
  const auto absent = missing();
  const std::string within = " within " + to_text(self_.limit.duration) + " (the limit of rank " +
                             std::to_string(self_.rank) + ")";
  if (absent.empty())
    return {Verdict::kTimeout, -1,
            "the last ranks were still arriving when the time was up:" + within};
  return {Verdict::kTimeout, absent.size() == 1 ? absent[0] : -1,
          name_ranks(absent, self_.size) + " did not arrive" + within + last_seen(absent) +
              other_world()};
}

// Where some of the missing ranks were last seen on this store.
std::string Attempt::last_seen(const std::vector<int>& absent) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(absent.size(), 4); ++i) {
    if (!store_.has({seen_key(absent[i])})) continue;
    text += "; rank " + std::to_string(absent[i]) + " was last seen creating " +
            store_.get(seen_key(absent[i]), kGrace);
  }
  return text;
}

// A communicator of this name, but of another size, that was made here before: often a second
// world that uses the store by mistake.
std::string Attempt::other_world() {
  if (number_ == 0) return {};
  const Attempt previous(store_, self_, root_, number_ - 1);
  if (!store_.has({previous.key("verdict")})) return {};
  const auto verdict =
      Verdict::parse(store_.get(previous.key("verdict"), kGrace), store_.address());
  if (verdict.kind != Verdict::kGo || verdict.text == count_ranks(self_.size)) return {};
  return "; the last communicator " + quoted(self_.name) + " here was formed of " + verdict.text +
         ", this one is to have " + count_ranks(self_.size);
}

Verdict Attempt::read_verdict() {
  return Verdict::parse(store_.get(key("verdict"), kGrace), store_.address());
}

std::vector<int> Attempt::missing() { return absent_ranks(store_, key("rank/"), self_.size); }

}  // namespace torch::comms::bootstrap
