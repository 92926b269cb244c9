#include <malloc.h>

#include "ctran/engine/world.hpp"

namespace torch::comms::ctran::test {
namespace {

float sum_of_ranks(EngineGroup& group, int value) {
  std::vector<float> values(3, static_cast<float>(value));
  AllReduce reduce(values, group.size());
  group.run(reduce.call);
  return values[2];
}

TEST(Split, AnyPartitionInAnyOrder) {
  run({.size = 5}, [](Rank& self) {
    const int rank = self.rank();
    const std::vector<int> odd = {3, 1}, even = {4, 0, 2};
    const auto& mine = rank % 2 == 1 ? odd : even;
    const auto half = self.group->split(mine, "half");
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(half->size(), static_cast<int>(mine.size()));
    EXPECT_EQ(mine[static_cast<size_t>(half->rank())], rank);
    EXPECT_EQ(sum_of_ranks(*half, rank), rank % 2 == 1 ? 4.0f : 6.0f);
    // The members alone; the others do not even call.
    if (rank == 1 || rank == 4) {
      const int pair[] = {4, 1};
      const auto two = self.group->split(pair, "two");
      EXPECT_EQ(two->rank(), rank == 4 ? 0 : 1);
      EXPECT_EQ(sum_of_ranks(*two, rank), 5.0f);
    }
    EXPECT_EQ(self.group->split({}, "none"), nullptr);
    EXPECT_EQ(sum_of_ranks(*self.group, 1), 5.0f);
  });
}

TEST(Split, OfSplitsOfSplitsDoNotMeetEachOthersMessages) {
  run({.size = 4}, [](Rank& self) {
    std::vector<std::unique_ptr<EngineGroup>> line;
    auto* parent = self.group.get();
    for (int depth = 0; depth < 8; ++depth) {
      std::vector<int> all;
      for (int rank = parent->size() - 1; rank >= 0; --rank) all.push_back(rank);
      line.push_back(parent->split(all, "depth " + std::to_string(depth)));
      parent = line.back().get();
    }
    std::vector<std::vector<float>> values;
    for (size_t i = 0; i < line.size(); ++i) values.emplace_back(50, static_cast<float>(i + 1));
    std::vector<EngineWork> works;
    // Started in another order on each rank: nothing but the groups keeps them apart.
    for (size_t i = 0; i < line.size(); ++i) {
      const size_t at = (i + 2 * static_cast<size_t>(self.rank())) % line.size();
      AllReduce reduce(values[at], 4);
      works.push_back(line[at]->start(reduce.call));
    }
    for (auto& work : works) work.wait();
    for (size_t i = 0; i < line.size(); ++i)
      EXPECT_EQ(values[i], std::vector<float>(50, 4 * static_cast<float>(i + 1)));
    self.sync();
  });
}

// Ranks 0 and 1 split two groups at once, from two threads, in no order between them.
TEST(Split, OfTwoParentsAtOnceGetStreamsOfTheirOwn) {
  run({.size = 2}, [](Rank& self) {
    const int all[] = {0, 1};
    const auto left = self.group->split(all, "left"), right = self.group->split(all, "right");
    const auto work = [&](EngineGroup& parent) {
      for (int i = 0; i < 300; ++i) {
        const auto child = parent.split(all, "child");
        EXPECT_EQ(sum_of_ranks(*child, i), 2.0f * static_cast<float>(i));
      }
    };
    std::thread other([&] { work(*right); });
    work(*left);
    other.join();
    self.sync();
  });
}

TEST(Split, IsRefusedForListsThatCannotBe) {
  run({.size = 2}, [](Rank& self) {
    const auto code = [&](std::vector<int> ranks) {
      return error_of([&] { static_cast<void>(self.group->split(ranks, "x")); }).code();
    };
    EXPECT_EQ(code({0, 2}), Errc::kInvalidArgument);
    EXPECT_EQ(code({0, 1, 1}), Errc::kInvalidArgument);
    EXPECT_EQ(code({1 - self.rank()}), Errc::kInvalidArgument);
    EXPECT_EQ(sum_of_ranks(*self.group, 1), 2.0f);
  });
}

TEST(Split, MembersWithOtherListsAreTold) {
  run({.size = 3}, [](Rank& self) {
    if (self.rank() == 2) return self.sync();
    const std::vector<int> mine = self.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0};
    const auto error = error_of([&] { static_cast<void>(self.group->split(mine, "x", kLong)); });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    self.sync();
  });
}

TEST(Split, MembersWithOtherNamesAreToldAndGoOn) {
  run({.size = 4}, [](Rank& self) {
    const int all[] = {0, 1, 2, 3};
    const std::string long_name(100, 'x');
    const auto error = error_of([&] {
      static_cast<void>(
          self.group->split(all, self.rank() == 2 ? "other" : long_name + "y", kLong));
    });
    EXPECT_EQ(error.code(), Errc::kMismatch) << error.what();
    EXPECT_EQ(error.why(), "the ranks call split() with different names: 'other' by rank 2, '" +
                               std::string(29, 'x') + "..." + std::string(31, 'x') +
                               "y' by ranks 0, 1, 3");
    EXPECT_EQ(sum_of_ranks(*self.group, 1), 4.0f);
    const auto child = self.group->split(all, "same", kLong);
    EXPECT_EQ(sum_of_ranks(*child, 1), 4.0f);
    self.sync();
  });
}

TEST(Split, ALongNameIsToldInWholeCharacters) {
  run({.size = 2}, [](Rank& self) {
    const int all[] = {0, 1};
    const auto repeated = [](int count) {
      std::string text;
      for (int i = 0; i < count; ++i) text += "\xc3\xbc";
      return text;
    };
    const auto error = error_of([&] {
      static_cast<void>(self.group->split(all, self.rank() == 0 ? repeated(60) + "y" : "a", kLong));
    });
    EXPECT_EQ(error.why(), "the ranks call split() with different names: 'a' by rank 1, '" +
                               repeated(14) + "..." + repeated(15) + "y' by rank 0");
    self.sync();
  });
}

TEST(Split, AThousandAliveCostLessThanAHundredKilobytesEach) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have memory of their own";
  run({.size = 4}, [](Rank& self) {
    const int all[] = {0, 1, 2, 3};
    const auto used = [] {
      const auto info = ::mallinfo2();
      return info.uordblks + info.hblkhd;
    };
    self.sync();
    const size_t before = used();
    self.sync();
    std::vector<std::unique_ptr<EngineGroup>> groups;
    for (int i = 0; i < 300; ++i) {
      groups.push_back(self.group->split(all, "one of many"));
      if (i % 10 == 0) {
        EXPECT_EQ(sum_of_ranks(*groups.back(), 1), 4.0f);
      }
    }
    for (auto& group : groups) EXPECT_EQ(sum_of_ranks(*group, 2), 8.0f);
    self.sync();
    // Of all four ranks of this process together.
    EXPECT_LT(used() - before, 4u * 1000 * 100'000);
    if (self.rank() == 0) std::printf("a split costs %zu bytes\n", (used() - before) / 4 / 1000);
    self.sync();
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
