#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "ctran/engine/reference.hpp"
#include "schedule/algorithm.hpp"

// Calls that look like an earlier one, small ones: they go without a task as long as peers come
// soon, and with one from wherever they are once a peer is late.
namespace torch::comms::ctran::test {
namespace {

void pass_by(int turns) {
  for (int i = 0; i < turns; ++i) std::this_thread::yield();
}

// Each rank comes to each call early or late, as its own dice say.
void repeat(Rank& self, const Case& c, const schedule::Algorithm* algorithm, int times) {
  std::mt19937 dice(static_cast<unsigned>(self.rank()));
  for (int i = 0; i < times; ++i) {
    Checked checked(c, self.rank());
    checked.call.algorithm = algorithm;
    pass_by(dice() % 4 == 0 ? static_cast<int>(dice() % 40) : 0);
    self.group->run(checked.call);
    ASSERT_TRUE(checked.right()) << schedule::operation_name(c.operation) << ", call " << i;
  }
}

class Express : public testing::TestWithParam<int> {};

TEST_P(Express, CallsAreRightWheneverTheirPeersCome) {
  const int size = GetParam();
  run({.size = size}, [&](Rank& self) {
    for (const auto operation : kCollectives)
      for (const int64_t each : {1, 100, 3000})
        repeat(self, {operation, size - 1, equal_counts(operation, size, each), ReduceOpCode::kSum},
               nullptr, 40);
  });
}

TEST_P(Express, AlgorithmsOfManyStepsGoOnInTheMiddle) {
  const int size = GetParam();
  run({.size = size}, [&](Rank& self) {
    for (const auto* algorithm : schedule::algorithms()) {
      const auto operation = algorithm->operation;
      if (std::ranges::find(kCollectives, operation) == std::end(kCollectives)) continue;
      const Case c{operation, 0, equal_counts(operation, size, 3), ReduceOpCode::kSum};
      try {
        repeat(self, c, algorithm, 12);
      } catch (const CommError& error) {  // on all ranks, before anything was sent
        ASSERT_EQ(error.code(), Errc::kUnsupported) << algorithm->name;
      }
    }
  });
}

// What one of them has planned is none of the other's, where ranks have other places.
TEST_P(Express, GroupsOfTheSameRanksInAnotherOrderKeepTheirPlans) {
  const int size = GetParam();
  run({.size = size}, [&](Rank& self) {
    std::vector<int> order(static_cast<size_t>(size));
    std::iota(order.begin(), order.end(), 0);
    const auto forth = self.group->split(order, "forth");
    std::ranges::reverse(order);
    const auto back = self.group->split(order, "back");
    std::mt19937 dice(static_cast<unsigned>(self.rank()));
    for (const auto operation : kCollectives)
      for (int i = 0; i < 40; ++i)
        for (auto* group : {forth.get(), back.get()}) {
          const Case c{operation, 1, equal_counts(operation, size, 3), ReduceOpCode::kSum};
          Checked checked(c, group->rank());
          pass_by(dice() % 4 == 0 ? static_cast<int>(dice() % 40) : 0);
          // One at once, one with a task.
          if (group == back.get())
            group->run(checked.call);
          else
            group->start(checked.call).wait();
          ASSERT_TRUE(checked.right()) << schedule::operation_name(operation) << ", call " << i;
        }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Express, testing::Values(2, 3, 4, 5));

TEST(ExpressFailures, ACallThatDiffersFromItsPeersIsSeen) {
  run({.size = 3}, [](Rank& self) {
    std::vector<float> three(3, 1), four(4, 1);
    AllReduce small(three, 3), large(four, 3);
    for (int i = 0; i < 10; ++i) self.group->run(small.call), self.group->run(large.call);
    const auto& mine = self.rank() == 1 ? large.call : small.call;
    const auto error = error_of([&] { self.group->run(mine); });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    EXPECT_NE(std::string(error.what()).find("4 elements"), std::string::npos) << error.what();
    self.sync();
  });
}

TEST(ExpressFailures, APeerThatNeverComesEndsTheCallAtItsLimit) {
  run({.size = 2}, [](Rank& self) {
    for (int i = 0; i < 10; ++i) self.group->run(barrier(2));
    if (self.rank() == 0) {
      auto call = barrier(2);
      call.timeout = milliseconds(50);
      const auto error = error_of([&] { self.group->run(call); });
      EXPECT_EQ(error.code(), Errc::kTimeout) << error.what();
      EXPECT_NE(std::string(error.what()).find("as number 11"), std::string::npos) << error.what();
    }
    self.sync();
  });
}

TEST(ExpressFailures, APeerThatLeavesIsNamed) {
  run({.size = 2}, [](Rank& self) {
    for (int i = 0; i < 10; ++i) self.group->run(barrier(2));
    if (self.rank() == 1) {
      self.group.reset();
      return self.sync();
    }
    const auto error = error_of([&] { self.group->run(barrier(2)); });
    EXPECT_EQ(error.code(), Errc::kPeerFailed) << error.what();
    EXPECT_EQ(error.context().peer, 1);
    self.sync();
  });
}

TEST(ExpressFailures, AnAbortFromAnotherThreadEndsIt) {
  run({.size = 2}, [](Rank& self) {
    for (int i = 0; i < 10; ++i) self.group->run(barrier(2));
    if (self.rank() == 0) {
      std::thread other([&] { self.group->abort("enough"); });
      const auto error = error_of([&] { self.group->run(barrier(2)); });
      other.join();
      EXPECT_EQ(error.code(), Errc::kAborted) << error.what();
    }
    self.sync();
  });
}

// A fast rank leaves its messages behind until there is no credit for more.
TEST(ExpressCredit, ABroadcasterRunsAheadOnlyAsFarAsItsCredit) {
  constexpr int kCalls = 20'000;
  run({.size = 2}, [](Rank& self) {
    std::vector<float> values(2);
    Simple call(Operation::kBroadcast, Blocks::even(2, 2), bytes_of(std::as_const(values)),
                bytes_of(values), sizeof(float));
    for (int i = 0; i < kCalls; ++i) {
      if (self.rank() == 0) values.assign(2, static_cast<float>(i));
      self.group->run(call.call);
      ASSERT_EQ(values[1], static_cast<float>(i));
    }
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
