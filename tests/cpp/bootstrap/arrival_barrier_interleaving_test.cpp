// The check-in under every kind of timing: a scheduler lets one rank at a time do one store
// operation, in an order drawn from a seed, and lets limits pass where the seed says so. No clock
// takes part.

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "bootstrap/arrival_barrier.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

class Scheduler {
 public:
  Scheduler(int ranks, unsigned seed) : turns_(static_cast<size_t>(ranks)), random_(seed) {}

  // Called by rank threads: waits for its turn. False: its limit passed first.
  bool turn(int rank, const std::string& awaited, bool may_expire) {
    std::unique_lock lock(mutex_);
    auto& own = turns_[static_cast<size_t>(rank)];
    own = {kWaiting, awaited, may_expire};
    changed_.notify_all();
    changed_.wait(lock, [&] { return own.state == kGranted || own.state == kExpired; });
    const bool granted = own.state == kGranted;
    own.state = kRunning;
    return granted;
  }
  void done(int rank) {
    const std::lock_guard lock(mutex_);
    turns_[static_cast<size_t>(rank)].state = kDone;
    changed_.notify_all();
  }

  // Gives turns until all ranks are done. False: nobody can go on.
  bool run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] {
        return std::ranges::all_of(
            turns_, [](const Turn& t) { return t.state == kWaiting || t.state == kDone; });
      });
      if (std::ranges::all_of(turns_, [](const Turn& t) { return t.state == kDone; })) return true;
      if (!grant_one()) return false;
      changed_.notify_all();
    }
  }

  std::map<std::string, std::string>
      values;  // touched only by the rank whose turn it is, and by run()

 private:
  enum State { kRunning, kWaiting, kGranted, kExpired, kDone };
  struct Turn {
    State state = kRunning;
    std::string awaited;  // key; empty: none
    bool may_expire = false;
  };

  bool grant_one() {
    std::vector<Turn*> able;
    for (auto& t : turns_)
      if (t.state == kWaiting && (t.may_expire || t.awaited.empty() || values.contains(t.awaited)))
        able.push_back(&t);
    if (able.empty()) return false;
    Turn& chosen = *able[random_() % able.size()];
    const bool there = chosen.awaited.empty() || values.contains(chosen.awaited);
    // A limit may also pass when the key has just come.
    const bool expires = chosen.may_expire && (!there || random_() % 4 == 0);
    chosen.state = expires ? kExpired : kGranted;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Turn> turns_;
  std::mt19937 random_;
};

class ScheduledKeyValue final : public KeyValueStore {
 public:
  ScheduledKeyValue(Scheduler& scheduler, int rank) : scheduler_(scheduler), rank_(rank) {}

  void set(const std::string& key, const std::string& value) override {
    step();
    scheduler_.values[key] = value;
  }
  std::string get(const std::string& key, milliseconds limit) override {
    // Only the rank's own limit, which is zero here, may pass; the grace for another's text does
    // not.
    if (!scheduler_.turn(rank_, key, limit.count() == 0))
      throw CommError(Errc::kTimeout, "no key " + key);
    return scheduler_.values[key];
  }
  bool has(const std::vector<std::string>& keys) override {
    step();
    return std::ranges::all_of(keys,
                               [&](const auto& key) { return scheduler_.values.contains(key); });
  }
  int64_t add(const std::string& key, int64_t amount) override {
    step();
    auto& value = scheduler_.values[key];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + amount);
    return std::stoll(value);
  }
  void remove(const std::string& key) override {
    step();
    scheduler_.values.erase(key);
  }
  std::string address() const override { return "scheduled"; }

 private:
  void step() { scheduler_.turn(rank_, "", false); }
  Scheduler& scheduler_;
  int rank_;
};

struct History {
  std::vector<int64_t> attempts;  // at which this rank was let through
  int timeouts = 0;
};

// Creates `name` until it was let through `successes` times, or timed out `max_timeouts` times.
void run_attempts(Scheduler& scheduler, int rank, int size, int successes, int max_timeouts,
                  History& history) {
  ScheduledKeyValue kv(scheduler, rank);
  const ArrivalBarrierParams self{.key_scope = "s",
                                  .name = "n",
                                  .rank = rank,
                                  .size = size,
                                  .process_description = "r" + std::to_string(rank),
                                  .timeout = {milliseconds(0), "KNOB"},
                                  .deadline = Deadline(milliseconds(0))};
  while (static_cast<int>(history.attempts.size()) < successes && history.timeouts < max_timeouts) {
    try {
      history.attempts.push_back(wait_for_all_ranks(kv, self).attempt);
    } catch (const CommError& e) {
      ASSERT_EQ(e.code(), Errc::kTimeout) << e.what();
      ++history.timeouts;
    }
  }
  scheduler.done(rank);
}

struct Totals {
  int worlds = 0;
  int timeouts = 0;
};

void run_world(int size, unsigned seed, Totals& totals) {
  Scheduler scheduler(size, seed);
  std::vector<History> histories(static_cast<size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      run_attempts(scheduler, rank, size, 3, 12, histories[static_cast<size_t>(rank)]);
    });
  if (!scheduler.run()) {
    ADD_FAILURE() << "nobody can go on, seed " << seed;
    std::abort();  // the rank threads cannot be joined
  }
  threads.clear();

  std::map<int64_t, int> let_through;
  for (const auto& history : histories) {
    EXPECT_TRUE(std::ranges::is_sorted(history.attempts)) << "seed " << seed;
    for (const auto attempt : history.attempts) ++let_through[attempt];
    totals.timeouts += history.timeouts;
  }
  for (const auto& [attempt, ranks] : let_through)
    EXPECT_EQ(ranks, size) << "attempt " << attempt << " let only some ranks through, seed "
                           << seed;
  totals.worlds += static_cast<int>(let_through.size());
}

TEST(CheckInInterleaving, AnAttemptLetsAllRanksThroughOrNone) {
  Totals totals;
  for (unsigned seed = 0; seed < 100 && !HasFailure(); ++seed)
    run_world(2 + static_cast<int>(seed % 3), seed, totals);
  // Both ends were really played.
  EXPECT_GT(totals.worlds, 50);
  EXPECT_GT(totals.timeouts, 100);
  RecordProperty("worlds", totals.worlds);
  RecordProperty("timeouts", totals.timeouts);
}

}  // namespace
}  // namespace torch::comms::bootstrap
