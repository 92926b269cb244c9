#include <atomic>
#include <random>

#include "base/setting.hpp"
#include "ctran/engine/reference.hpp"

// Everything at once, by dice: operations, splits, drops, aborts and timeouts, in several contexts
// side by side. The seed is printed; TC_TEST_SEED=<seed> repeats a run, TC_TEST_ROUNDS lengthens
// it.
namespace torch::comms::ctran::test {
namespace {

using torch::comms::test::setting;

// One rank of one context. All ranks of it roll the same dice, so that they agree on what is next.
class Player {
 public:
  Player(Rank& self, uint64_t seed) : self_(self), dice_(seed) {}

  void play(uint64_t rounds) {
    for (uint64_t round = 0; round < rounds; ++round) {
      switch (roll(10)) {
        case 0:
          split();
          break;
        case 1:
          if (!groups_.empty())
            groups_.erase(groups_.begin() + roll(static_cast<int>(groups_.size())));
          break;
        case 2:
          abort_one();
          break;
        case 3:
          time_out_one();
          break;
        case 4:
          pass_round(any_group());
          break;
        case 5:
          run_many(any_group());
          break;
        default:
          run_one(any_group());
      }
    }
    self_.group->run(barrier(self_.size()));
  }

 private:
  int roll(int sides) { return static_cast<int>(dice_() % static_cast<uint64_t>(sides)); }

  EngineGroup& any_group() {
    const int which = roll(static_cast<int>(groups_.size()) + 1);
    return which == 0 ? *self_.group : *groups_[static_cast<size_t>(which) - 1];
  }

  std::unique_ptr<EngineGroup> all_of(const char* name) {
    std::vector<int> ranks;
    for (int rank = 0; rank < self_.size(); ++rank) ranks.push_back(rank);
    std::shuffle(ranks.begin(), ranks.end(), dice_);
    return self_.group->split(ranks, name, kLong);
  }

  void split() {
    if (groups_.size() < 6) groups_.push_back(all_of("one of many"));
  }

  Case any_case(const EngineGroup& group) {
    const auto operation = kCollectives[roll(std::size(kCollectives))];
    const int64_t sizes[] = {0, 1, 33, 3000, 40'000};
    return {operation, roll(group.size()),
            equal_counts(operation, group.size(), sizes[roll(std::size(sizes))]),
            roll(2) == 0 ? ReduceOpCode::kSum : ReduceOpCode::kMax};
  }

  void run_one(EngineGroup& group) {
    const auto c = any_case(group);
    Checked call(c, group.rank());
    group.run(call.call);
    EXPECT_TRUE(call.right()) << schedule::operation_name(c.operation);
  }

  void run_many(EngineGroup& group) {
    std::vector<std::unique_ptr<Checked>> calls;
    std::vector<EngineWork> works;
    for (int i = roll(6) + 1; i > 0; --i) {
      calls.push_back(std::make_unique<Checked>(any_case(group), group.rank()));
      works.push_back(group.start(calls.back()->call));
    }
    while (!works.empty()) {  // in any order
      const auto at = works.begin() + static_cast<std::ptrdiff_t>(own_() % works.size());
      at->wait();
      works.erase(at);
    }
    for (const auto& call : calls) EXPECT_TRUE(call->right());
  }

  void pass_round(EngineGroup& group) {
    const int size = group.size(), tag = roll(3);
    const int next = (group.rank() + 1) % size, before = (group.rank() + size - 1) % size;
    const auto count = static_cast<size_t>(roll(20'000) + 1);
    std::vector<float> out(count, static_cast<float>(group.rank())), in(count);
    Message send(Operation::kSend, next, out, size), receive(Operation::kReceive, before, in, size);
    send.call.tag = receive.call.tag = tag;
    const EngineCall batch[] = {send.call, receive.call};
    if (tag == 1) {
      auto work = group.start(receive.call);
      group.run(send.call);
      work.wait();
    } else {
      group.run(batch);
    }
    EXPECT_EQ(in, std::vector<float>(count, static_cast<float>(before)));
  }

  // What the doomed group's ranks see is one of these, whoever is first.
  void expect_end(EngineGroup& group, const std::function<void()>& body) {
    const auto error = error_of(body);
    const bool known = error.code() == Errc::kAborted || error.code() == Errc::kPeerFailed ||
                       error.code() == Errc::kTimeout;
    EXPECT_TRUE(known) << error.what();
    EXPECT_TRUE(group.failure().has_value());
  }

  void abort_one() {
    const int who = roll(self_.size());
    auto doomed = all_of("to be aborted");
    std::thread aborter;
    if (doomed->rank() == who) aborter = std::thread([&] { doomed->abort("by dice"); });
    expect_end(*doomed, [&] {
      while (true) run_one_quietly(*doomed);
    });
    if (aborter.joinable()) aborter.join();
  }

  // Values of a group that ends at any moment are not looked at: the dice must not be, either.
  static void run_one_quietly(EngineGroup& group) {
    std::vector<float> values(500, 1);
    AllReduce reduce(values, group.size());
    group.run(reduce.call);
  }

  void time_out_one() {
    const int who = roll(self_.size());
    auto doomed = all_of("to be late");
    if (doomed->rank() != who) {
      std::vector<float> values(5000, 1);
      AllReduce reduce(values, doomed->size());
      reduce.call.timeout = milliseconds(20);
      expect_end(*doomed, [&] { doomed->run(reduce.call); });
    } else {
      while (!doomed->failure()) std::this_thread::yield();  // by the others' limit
    }
  }

  Rank& self_;
  std::mt19937_64 dice_;
  std::mt19937_64 own_{static_cast<uint64_t>(self_.rank())};
  std::vector<std::unique_ptr<EngineGroup>> groups_;
};

TEST(Stress, OperationsSplitsDropsAbortsAndTimeoutsOfSeveralFamilies) {
  const auto seed = setting("TC_TEST_SEED", std::random_device{}());
  const auto rounds = setting("TC_TEST_ROUNDS", kSanitized ? 30 : 60);
  std::printf("TC_TEST_SEED=%llu TC_TEST_ROUNDS=%llu\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  std::fflush(stdout);
  const World worlds[] = {{.size = 4}, {.size = 3, .links = LinkPolicy::kTcp}, {.size = 2}};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::size(worlds); ++i)
    threads.emplace_back(
        [&, i] { run(worlds[i], [&](Rank& self) { Player(self, seed + i).play(rounds); }); });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace torch::comms::ctran::test
