// What the stand-in library does is what the backends' tests believe: its values, against plain
// arithmetic. Its half-width numbers are tests/spec's, where torch is.
#include <gtest/gtest.h>

#include <future>
#include <numeric>

#include "vendor/ranks.hpp"

namespace torch::comms::nccl {
namespace {

using abi::DataType;
using abi::RedOp;

template <class T>
struct TypeOf;
template <DataType kValue>
struct Is {
  static constexpr DataType value = kValue;
};
template <>
struct TypeOf<int8_t> : Is<DataType::kInt8> {};
template <>
struct TypeOf<uint8_t> : Is<DataType::kUint8> {};
template <>
struct TypeOf<int32_t> : Is<DataType::kInt32> {};
template <>
struct TypeOf<uint32_t> : Is<DataType::kUint32> {};
template <>
struct TypeOf<int64_t> : Is<DataType::kInt64> {};
template <>
struct TypeOf<uint64_t> : Is<DataType::kUint64> {};
template <>
struct TypeOf<float> : Is<DataType::kFloat32> {};
template <>
struct TypeOf<double> : Is<DataType::kFloat64> {};

// Small whole numbers, which every type holds exactly: 1, 2 or 3.
int number(int rank, int index) { return 1 + (rank + index) % 3; }

template <class T>
class StandInReduces : public StandInTest {};
using Types = testing::Types<int8_t, uint8_t, int32_t, uint32_t, int64_t, uint64_t, float, double>;
TYPED_TEST_SUITE(StandInReduces, Types);

TYPED_TEST(StandInReduces, EveryOperationInEveryCollective) {
  using T = TypeParam;
  constexpr int kSize = 3, kCount = 5;
  const auto reduced = [](RedOp op, int index) {
    int sum = 0, product = 1, most = 0, least = 9;
    for (int rank = 0; rank < kSize; ++rank) {
      const int n = number(rank, index);
      sum += n, product *= n, most = std::max(most, n), least = std::min(least, n);
    }
    // Of three numbers in turn the sum is six: an average that every type holds, too.
    return op == RedOp::kSum    ? sum
           : op == RedOp::kProd ? product
           : op == RedOp::kMax  ? most
           : op == RedOp::kMin  ? least
                                : sum / kSize;
  };
  with_ranks(this->load(kNccl, "libstand_in_nccl.so"), kSize, [&](Rank& self) {
    for (const auto op : {RedOp::kSum, RedOp::kProd, RedOp::kMax, RedOp::kMin, RedOp::kAvg}) {
      std::vector<T> data(kSize * kCount), reduce_out(kCount), scatter_out(kCount);
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<T>(number(self.rank(), static_cast<int>(i)));
      std::vector<T> all = data;
      self.run([&](const VendorLibrary& t, abi::Comm c) {
        const auto type = TypeOf<T>::value;
        t.Reduce(data.data(), reduce_out.data(), kCount, type, op, 1, c, self.stream);
        t.ReduceScatter(data.data(), scatter_out.data(), kCount, type, op, c, self.stream);
        return t.AllReduce(all.data(), all.data(), all.size(), type, op, c, self.stream);
      });
      for (int i = 0; i < kSize * kCount; ++i)
        EXPECT_EQ(static_cast<double>(all[static_cast<size_t>(i)]), reduced(op, i)) << i;
      for (int i = 0; i < kCount; ++i) {
        EXPECT_EQ(static_cast<double>(scatter_out[static_cast<size_t>(i)]),
                  reduced(op, self.rank() * kCount + i));
        EXPECT_EQ(static_cast<double>(reduce_out[static_cast<size_t>(i)]),
                  self.rank() == 1 ? reduced(op, i) : 0);
      }
    }
  });
}

TYPED_TEST(StandInReduces, PremulSumWithEachRanksOwnFactor) {
  using T = TypeParam;
  with_ranks(this->load(kNccl, "libstand_in_nccl.so"), 2, [&](Rank& self) {
    for (const auto where : {abi::ScalarResidence::kDevice, abi::ScalarResidence::kHostImmediate}) {
      T factor = static_cast<T>(self.rank() + 2);
      std::vector<T> data{static_cast<T>(1), static_cast<T>(3)};
      auto op = RedOp::kSum;
      self.comm->library().RedOpCreatePreMulSum(&op, &factor, TypeOf<T>::value, where,
                                                self.comm->handle());
      self.launch([&](const VendorLibrary& t, abi::Comm c) {
        return t.AllReduce(data.data(), data.data(), data.size(), TypeOf<T>::value, op, c,
                           self.stream);
      });
      self.comm->library().RedOpDestroy(op, self.comm->handle());
      gpu::Runtime::cpu().synchronize(self.stream);
      EXPECT_EQ(static_cast<double>(data[0]), 5);
      EXPECT_EQ(static_cast<double>(data[1]), 15);
    }
  });
}

class StandIn : public StandInTest {
 protected:
  VendorLibrary table() { return load(kNccl, "libstand_in_nccl.so"); }
};

TEST_F(StandIn, AnAverageOfIntegersIsCutTowardZero) {
  with_ranks(table(), 2, [](Rank& self) {
    int32_t data[2] = {self.rank() == 0 ? -3 : 0, self.rank() == 0 ? 3 : 0};
    self.run([&](const VendorLibrary& t, abi::Comm c) {
      return t.AllReduce(data, data, 2, DataType::kInt32, RedOp::kAvg, c, self.stream);
    });
    EXPECT_EQ(data[0], -1);
    EXPECT_EQ(data[1], 1);
  });
}

TEST_F(StandIn, BroadcastAndAllGatherMoveBytes) {
  with_ranks(table(), 3, [](Rank& self) {
    const char own = static_cast<char>('a' + self.rank());
    char all[3] = {}, from_two = own;
    self.run([&](const VendorLibrary& t, abi::Comm c) {
      t.Broadcast(&own, &from_two, 1, DataType::kInt8, 2, c, self.stream);
      return t.AllGather(&own, all, 1, DataType::kInt8, c, self.stream);
    });
    EXPECT_EQ(std::string(all, 3), "abc");
    EXPECT_EQ(from_two, 'c');
  });
}

// Each far larger than a mailbox, in both directions between all, and to oneself.
TEST_F(StandIn, MessagesOfAGroupGoAtOnce) {
  constexpr size_t kCount = 300000;
  with_ranks(table(), 3, [](Rank& self) {
    std::vector<std::vector<int32_t>> in(3), out(3);
    self.run([&](const VendorLibrary& t, abi::Comm c) {
      for (int peer = 0; peer < 3; ++peer) {
        const auto at = static_cast<size_t>(peer);
        out[at].assign(kCount, 10 * self.rank() + peer);
        in[at].assign(kCount, -1);
        t.Send(out[at].data(), kCount, DataType::kInt32, peer, c, self.stream);
      }
      for (int peer = 0; peer < 3; ++peer)
        t.Recv(in[static_cast<size_t>(peer)].data(), kCount, DataType::kInt32, peer, c,
               self.stream);
      return abi::kSuccess;
    });
    for (int peer = 0; peer < 3; ++peer) {
      const auto& got = in[static_cast<size_t>(peer)];
      EXPECT_EQ(std::accumulate(got.begin(), got.end(), int64_t{0}),
                static_cast<int64_t>(kCount) * (10 * peer + self.rank()));
    }
  });
}

TEST_F(StandIn, MessagesToOnePeerArriveInTheirOrder) {
  with_ranks(table(), 2, [](Rank& self) {
    int32_t data[3] = {1, 2, 3};
    if (self.rank() == 1) data[0] = data[1] = data[2] = 0;
    self.run([&](const VendorLibrary& t, abi::Comm c) {
      for (auto& value : data)
        self.rank() == 0 ? t.Send(&value, 1, DataType::kInt32, 1, c, self.stream)
                         : t.Recv(&value, 1, DataType::kInt32, 0, c, self.stream);
      return abi::kSuccess;
    });
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(data[2], 3);
  });
}

TEST_F(StandIn, CallsReturnBeforeTheOperationBegins) {
  with_ranks(table(), 2, [](Rank& self) {
    std::promise<void> open;
    gpu::cpu_launch(self.stream, [gate = open.get_future().share()] { gate.wait(); });
    int32_t value = 1;
    self.launch([&](const VendorLibrary& t, abi::Comm c) {
      return t.AllReduce(&value, &value, 1, DataType::kInt32, RedOp::kSum, c, self.stream);
    });
    EXPECT_EQ(value, 1);
    open.set_value();
    gpu::Runtime::cpu().synchronize(self.stream);
    EXPECT_EQ(value, 2);
  });
}

TEST_F(StandIn, RanksThatDisagreeSeeAnAsynchronousError) {
  with_ranks(table(), 2, [](Rank& self) {
    int32_t values[2] = {1, 1};
    self.run([&](const VendorLibrary& t, abi::Comm c) {
      return t.AllReduce(values, values, self.rank() + 1, DataType::kInt32, RedOp::kSum, c,
                         self.stream);
    });
    EXPECT_NE(self.comm->check_async([] { return Context{}; }), nullptr);
  });
}

}  // namespace
}  // namespace torch::comms::nccl
