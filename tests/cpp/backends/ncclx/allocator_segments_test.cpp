// Memory of torch's allocator that communicators tell their library of.
#include "backends/ncclx/allocator_segments.hpp"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/ncclx/world.hpp"

namespace torch::comms::ncclx {
namespace {

char memory[4000];
AllocatorSegment piece(size_t at, size_t size_bytes) { return {memory + at, size_bytes}; }

// What a follower is told, in words: "+0:10" for 10 bytes from the first on.
struct Told {
  TrackedSegments followed;
  std::vector<std::string> words;
  bool is_able = true;

  void look(const AllocatorSegments& all, int device = 0) {
    const auto tell = [this](char sign) {
      return [this, sign](const AllocatorSegment& one) {
        words.push_back(sign + std::to_string(one.begin - memory) + ":" +
                        std::to_string(one.size_bytes));
        return is_able;
      };
    };
    words.clear();
    followed.update(all, device, tell('+'), tell('-'));
  }
};
using Words = std::vector<std::string>;

TEST(Segments, AFollowerIsToldOfWhatHasChangedOnItsDevice) {
  AllocatorSegments all;
  Told told;
  EXPECT_TRUE(told.followed.is_up_to_date(all));
  all.add(0, piece(0, 10));
  all.add(1, piece(20, 10));
  all.add(0, piece(40, 10));
  EXPECT_FALSE(told.followed.is_up_to_date(all));
  told.look(all);
  EXPECT_EQ(told.words, (Words{"+0:10", "+40:10"}));
  EXPECT_TRUE(told.followed.is_up_to_date(all));
  all.remove(0, piece(0, 10));
  told.look(all);
  EXPECT_EQ(told.words, (Words{"-0:10"}));
  told.look(all);
  EXPECT_EQ(told.words, Words{});
}

TEST(Segments, WhatGoesAndComesAtOnePlaceIsAnotherSegment) {
  AllocatorSegments all;
  Told told;
  all.add(0, piece(0, 10));
  told.look(all);
  all.remove(0, piece(0, 10));
  all.add(0, piece(0, 10));
  told.look(all);
  EXPECT_EQ(told.words, (Words{"-0:10", "+0:10"}));
  all.add(0, piece(0, 10));  // it is there
  told.look(all);
  EXPECT_EQ(told.words, Words{});
}

TEST(Segments, APartThatGoesTakesAllThatItIsAPartOf) {
  AllocatorSegments all;
  Told told;
  for (const size_t at : {0, 100, 200}) all.add(0, piece(at, 100));
  told.look(all);
  all.remove(0, piece(150, 60));
  told.look(all);
  EXPECT_EQ(told.words, (Words{"-100:100", "-200:100"}));
  all.remove(0, piece(100, 100));  // nothing is there, nor beside it
  told.look(all);
  EXPECT_EQ(told.words, Words{});
}

TEST(Segments, ManyComeAtOnceOrNotAtAll) {
  AllocatorSegments all;
  const auto version = all.version();
  all.add(0, piece(0, 10));
  EXPECT_FALSE(all.add_all(version, {{0, piece(20, 10)}}));
  EXPECT_EQ(all.of(0).segments.size(), 1u);
  EXPECT_TRUE(all.add_all(all.version(), {{0, piece(20, 10)}, {0, piece(0, 10)}}));
  EXPECT_EQ(all.of(0).segments.size(), 2u);
}

TEST(Segments, WhoCannotBeToldIsNotAskedAgain) {
  AllocatorSegments all;
  Told told;
  told.is_able = false;
  all.add(0, piece(0, 10));
  all.add(0, piece(20, 10));
  told.look(all);
  EXPECT_EQ(told.words, (Words{"+0:10"}));
  all.remove(0, piece(0, 10));
  EXPECT_TRUE(told.followed.is_up_to_date(all));
}

class NcclxSegments : public NcclxTest {
 protected:
  auto registrations_after_a_call(Program& self) {
    auto tensor = at::full({4}, 1.0f);
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    return registrations();
  }
};

TEST_F(NcclxSegments, CommunicatorsTellTheirLibraryBeforeTheirNextOperation) {
  auto& all = AllocatorSegments::of_process();
  const auto before = registrations();
  on_ranks(1, [&](Program& self) {
    const auto count = [&] { return registrations_after_a_call(self) - before; };
    EXPECT_EQ(count(), 0);
    all.add(0, piece(0, 1000));
    all.add(0, piece(2000, 1000));
    all.add(1, piece(1000, 1000));  // of another device
    EXPECT_EQ(count(), 2);
    all.remove(0, piece(0, 1000));
    EXPECT_EQ(count(), 1);
    all.add(0, piece(0, 1000));
    auto child = self.comm->split({0}, "child", {});
    EXPECT_EQ(count(), 2);
    auto tensor = at::full({4}, 1.0f);
    child->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    EXPECT_EQ(registrations() - before, 4);
    child->finalize();
    self.comm->finalize();
  });
  EXPECT_EQ(registrations(), before);
  all.remove(0, {memory, sizeof memory});
  all.remove(1, {memory, sizeof memory});
}

TEST_F(NcclxSegments, OperationsGoOnWithoutARegistrationThatTheLibraryRefuses) {
  auto& all = AllocatorSegments::of_process();
  const auto before = registrations();
  on_ranks(1, [&](Program& self) {
    const auto count = [&] { return registrations_after_a_call(self) - before; };
    plan("fail=CommRegister:1");
    all.add(0, piece(0, 1000));
    all.add(0, piece(2000, 1000));
    EXPECT_EQ(count(), 1);
    all.remove(0, piece(0, 1000));
    EXPECT_EQ(count(), 1);
    all.remove(0, piece(2000, 1000));
    EXPECT_EQ(count(), 0);
    self.comm->finalize();
  });
}

TEST_F(NcclxSegments, ARegistrationOfMemoryThatHasGoneAndStaysEndsTheCommunicator) {
  auto& all = AllocatorSegments::of_process();
  on_ranks(1, [&](Program& self) {
    auto tensor = at::full({4}, 1.0f);
    all.add(0, piece(0, 1000));
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    plan("fail=CommDeregister:1");
    all.remove(0, piece(0, 1000));
    const auto error = error_of([&] { self.comm->all_reduce(tensor, ReduceOp::SUM, true); });
    EXPECT_EQ(error.code(), Errc::kVendor) << error.what();
    EXPECT_TRUE(self.comm->isAborted());
  });
}

TEST(Segments, WithoutAGpuThereIsNoAllocatorToFollow) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "there is one";
  for (int i = 0; i < 2; ++i) {
    const auto error = error_of([] { init_caching_allocator_hook(); });
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_EQ(error.context().op, "init_caching_allocator_hook");
  }
}

}  // namespace
}  // namespace torch::comms::ncclx
