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
AllocatorSegment segment(size_t at, size_t size_bytes) { return {memory + at, size_bytes}; }

// The changes that a follower records, as text: "+0:10" for 10 bytes from the first on.
struct SegmentFollower {
  TrackedSegments tracked;
  std::vector<std::string> changes;
  bool is_supported = true;

  void update(const AllocatorSegments& all, int device = 0) {
    const auto record = [this](char sign) {
      return [this, sign](const AllocatorSegment& one) {
        changes.push_back(sign + std::to_string(one.begin - memory) + ":" +
                          std::to_string(one.size_bytes));
        return is_supported;
      };
    };
    changes.clear();
    tracked.update(all, device, record('+'), record('-'));
  }
};
using Changes = std::vector<std::string>;

TEST(Segments, AFollowerIsToldOfWhatHasChangedOnItsDevice) {
  AllocatorSegments all;
  SegmentFollower follower;
  EXPECT_TRUE(follower.tracked.is_up_to_date(all));
  all.add(0, segment(0, 10));
  all.add(1, segment(20, 10));
  all.add(0, segment(40, 10));
  EXPECT_FALSE(follower.tracked.is_up_to_date(all));
  follower.update(all);
  EXPECT_EQ(follower.changes, (Changes{"+0:10", "+40:10"}));
  EXPECT_TRUE(follower.tracked.is_up_to_date(all));
  all.remove(0, segment(0, 10));
  follower.update(all);
  EXPECT_EQ(follower.changes, (Changes{"-0:10"}));
  follower.update(all);
  EXPECT_EQ(follower.changes, Changes{});
}

TEST(Segments, WhatGoesAndComesAtOnePlaceIsAnotherSegment) {
  AllocatorSegments all;
  SegmentFollower follower;
  all.add(0, segment(0, 10));
  follower.update(all);
  all.remove(0, segment(0, 10));
  all.add(0, segment(0, 10));
  follower.update(all);
  EXPECT_EQ(follower.changes, (Changes{"-0:10", "+0:10"}));
  all.add(0, segment(0, 10));  // it is there
  follower.update(all);
  EXPECT_EQ(follower.changes, Changes{});
}

TEST(Segments, APartThatGoesTakesAllThatItIsAPartOf) {
  AllocatorSegments all;
  SegmentFollower follower;
  for (const size_t at : {0, 100, 200}) all.add(0, segment(at, 100));
  follower.update(all);
  all.remove(0, segment(150, 60));
  follower.update(all);
  EXPECT_EQ(follower.changes, (Changes{"-100:100", "-200:100"}));
  all.remove(0, segment(100, 100));  // nothing is there, nor beside it
  follower.update(all);
  EXPECT_EQ(follower.changes, Changes{});
}

TEST(Segments, ManyComeAtOnceOrNotAtAll) {
  AllocatorSegments all;
  const auto version = all.version();
  all.add(0, segment(0, 10));
  EXPECT_FALSE(all.add_all(version, {{0, segment(20, 10)}}));
  EXPECT_EQ(all.of(0).segments.size(), 1u);
  EXPECT_TRUE(all.add_all(all.version(), {{0, segment(20, 10)}, {0, segment(0, 10)}}));
  EXPECT_EQ(all.of(0).segments.size(), 2u);
}

TEST(Segments, WhoCannotBeToldIsNotAskedAgain) {
  AllocatorSegments all;
  SegmentFollower follower;
  follower.is_supported = false;
  all.add(0, segment(0, 10));
  all.add(0, segment(20, 10));
  follower.update(all);
  EXPECT_EQ(follower.changes, (Changes{"+0:10"}));
  all.remove(0, segment(0, 10));
  EXPECT_TRUE(follower.tracked.is_up_to_date(all));
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
    all.add(0, segment(0, 1000));
    all.add(0, segment(2000, 1000));
    all.add(1, segment(1000, 1000));  // of another device
    EXPECT_EQ(count(), 2);
    all.remove(0, segment(0, 1000));
    EXPECT_EQ(count(), 1);
    all.add(0, segment(0, 1000));
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
    all.add(0, segment(0, 1000));
    all.add(0, segment(2000, 1000));
    EXPECT_EQ(count(), 1);
    all.remove(0, segment(0, 1000));
    EXPECT_EQ(count(), 1);
    all.remove(0, segment(2000, 1000));
    EXPECT_EQ(count(), 0);
    self.comm->finalize();
  });
}

TEST_F(NcclxSegments, ARegistrationOfMemoryThatHasGoneAndStaysEndsTheCommunicator) {
  auto& all = AllocatorSegments::of_process();
  on_ranks(1, [&](Program& self) {
    auto tensor = at::full({4}, 1.0f);
    all.add(0, segment(0, 1000));
    self.comm->all_reduce(tensor, ReduceOp::SUM, true)->hostSynchronize();
    plan("fail=CommDeregister:1");
    all.remove(0, segment(0, 1000));
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
