#include "vendor/blocking_adapter/async_facade.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cpu_runtime.hpp"
#include "gpu/runtime.hpp"
#include "vendor/stand_in.hpp"

namespace torch::comms::nccl {
namespace {

using abi::DataType;
using abi::RedOp;

// Ranks as threads, each with a stream, over the stand-in as a library whose calls block.
class OnStreams : public StandInTest {
 protected:
  struct Rank {
    const VendorLibrary& library;
    abi::Comm comm;
    int rank;
    gpu::NativeStream stream;
    void synchronize() const { gpu::Runtime::cpu().synchronize(stream); }
  };

  void SetUp() override {
    ::setenv(kOneCcl.host_variable, kOneCcl.host_value, 1);
    const auto blocking = load(kOneCcl, "libstand_in_oneccl.so");
    ASSERT_TRUE(blocking.is_blocking());
    library_ = make_async_facade(blocking);
  }
  void TearDown() override {
    ::unsetenv(kOneCcl.host_variable);
    StandInTest::TearDown();
  }

  void run(int size, const std::function<void(Rank&)>& body) {
    std::vector<char> id(kOneCcl.unique_id_bytes);
    ASSERT_EQ(library_.get_unique_id(id), abi::kSuccess);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        abi::Comm comm = nullptr;
        ASSERT_EQ(library_.init_rank(&comm, size, id, rank, nullptr), abi::kSuccess);
        gpu::NativeStream stream = nullptr;
        ASSERT_EQ(gpu::cpu_table().StreamCreateWithPriority(&stream, 0, 0), 0);
        Rank own{library_, comm, rank, stream};
        body(own);
        own.synchronize();
        EXPECT_EQ(library_.CommDestroy(comm), abi::kSuccess);
        gpu::cpu_table().StreamDestroy(stream);
      });
    for (auto& thread : threads) thread.join();
  }

  VendorLibrary library_;
};

TEST_F(OnStreams, AnOperationRunsOnItsStreamBehindWhatThatHas) {
  run(2, [](Rank& self) {
    float value = 0;
    gpu::cpu_launch(self.stream, [&] { value = static_cast<float>(self.rank + 1); });
    EXPECT_EQ(self.library.AllReduce(&value, &value, 1, DataType::kFloat32, RedOp::kSum, self.comm,
                                     self.stream),
              abi::kSuccess);
    self.synchronize();
    EXPECT_EQ(value, 3);
  });
}

TEST_F(OnStreams, AnAverageIsTheSumDivided) {
  run(3, [](Rank& self) {
    const int values[3] = {self.rank, -2 * self.rank, 3};
    int output[3] = {};
    self.library.AllReduce(values, output, 3, DataType::kInt32, RedOp::kAvg, self.comm,
                           self.stream);
    const uint16_t one = 0x3f80;  // bfloat16
    uint16_t mean = 0;
    self.library.AllReduce(&one, &mean, 1, DataType::kBfloat16, RedOp::kAvg, self.comm,
                           self.stream);
    self.synchronize();
    EXPECT_EQ(output[0], 1);
    EXPECT_EQ(output[1], -2);
    EXPECT_EQ(output[2], 3);
    EXPECT_EQ(mean, one);
  });
}

TEST_F(OnStreams, AFactorIsReadAtTheCallAndLeavesTheInputAlone) {
  run(2, [](Rank& self) {
    const double input = 5;
    double output = 0, factor = self.rank + 1;
    auto op = RedOp::kSum;
    ASSERT_EQ(self.library.RedOpCreatePreMulSum(&op, &factor, DataType::kFloat64,
                                                abi::ScalarResidence::kHostImmediate, self.comm),
              abi::kSuccess);
    self.library.AllReduce(&input, &output, 1, DataType::kFloat64, op, self.comm, self.stream);
    EXPECT_EQ(self.library.RedOpDestroy(op, self.comm), abi::kSuccess);
    self.synchronize();
    EXPECT_EQ(output, 15);
    EXPECT_EQ(input, 5);
  });
}

TEST_F(OnStreams, MessagesOfAGroupAreExchangedWhateverTheirSizes) {
  run(3, [](Rank& self) {
    std::vector<std::string> sent, got(3);
    for (int peer = 0; peer < 3; ++peer)
      sent.emplace_back(static_cast<size_t>(10 * self.rank + peer),
                        static_cast<char>('a' + self.rank));
    self.library.GroupStart();
    for (int peer = 0; peer < 3; ++peer) {
      const auto at = static_cast<size_t>(peer);
      got[at].resize(static_cast<size_t>(10 * peer + self.rank));
      self.library.Send(sent[at].data(), sent[at].size(), DataType::kUint8, peer, self.comm,
                        self.stream);
      self.library.Recv(got[at].data(), got[at].size(), DataType::kUint8, peer, self.comm,
                        self.stream);
    }
    EXPECT_EQ(self.library.GroupEnd(), abi::kSuccess);
    self.synchronize();
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(
          got[static_cast<size_t>(peer)],
          std::string(static_cast<size_t>(10 * peer + self.rank), static_cast<char>('a' + peer)));
  });
}

TEST_F(OnStreams, SizesThatDifferAreAnErrorThatNamesThemAndEndsTheCommunicator) {
  run(2, [](Rank& self) {
    char bytes[16] = {};
    const int peer = 1 - self.rank;
    self.library.GroupStart();
    if (self.rank == 0)
      self.library.Send(bytes, 8, DataType::kUint8, peer, self.comm, self.stream);
    else
      self.library.Recv(bytes, 16, DataType::kUint8, peer, self.comm, self.stream);
    self.library.GroupEnd();
    self.synchronize();
    auto state = abi::Result{abi::kSuccess};
    self.library.CommGetAsyncError(self.comm, &state);
    EXPECT_EQ(state, self.rank == 1 ? abi::kInvalidUsage : abi::kSuccess);
    EXPECT_STREQ(self.library.GetLastError(self.comm),
                 self.rank == 1 ? "rank 0 sends 8 bytes to rank 1, which receives 16" : "");
  });
}

TEST_F(OnStreams, AMessageOutsideOfAGroupIsRefused) {
  run(2, [](Rank& self) {
    char byte = 0;
    EXPECT_EQ(self.library.Send(&byte, 1, DataType::kUint8, 1 - self.rank, self.comm, self.stream),
              abi::kInvalidUsage);
  });
}

TEST_F(OnStreams, ASplitOrdersItsMembersByTheirKeys) {
  run(3, [](Rank& self) {
    abi::Comm child = nullptr;
    const int color = self.rank == 1 ? abi::kNoColor : 7;
    ASSERT_EQ(self.library.CommSplit(self.comm, color, -self.rank, &child, nullptr), abi::kSuccess);
    ASSERT_EQ(child == nullptr, self.rank == 1);
    if (child == nullptr) return;
    int all[2] = {};
    self.library.AllGather(&self.rank, all, 1, DataType::kInt32, child, self.stream);
    self.synchronize();
    EXPECT_EQ(all[0], 2);
    EXPECT_EQ(all[1], 0);
    EXPECT_EQ(self.library.CommDestroy(child), abi::kSuccess);
  });
}

TEST_F(OnStreams, WhatFailsIsToldOnceAndNothingRunsAfterwards) {
  run(1, [](Rank& self) {
    plan("fail=AllReduce:1", "libstand_in_oneccl.so");
    float value = 1;
    for (int turn = 0; turn < 2; ++turn)
      self.library.AllReduce(&value, &value, 1, DataType::kFloat32, RedOp::kSum, self.comm,
                             self.stream);
    self.synchronize();
    auto state = abi::Result{abi::kSuccess};
    EXPECT_EQ(self.library.CommGetAsyncError(self.comm, &state), abi::kSuccess);
    EXPECT_NE(state, abi::kSuccess);
    EXPECT_EQ(self.library.CommAbort, nullptr);
  });
}

}  // namespace
}  // namespace torch::comms::nccl
