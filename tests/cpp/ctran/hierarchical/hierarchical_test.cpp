// Collectives across hosts without a backend around them: small chunks, so that little data goes
// all ways; ranks are threads, hosts are names, kernels are the stand-in's.
#include "ctran/hierarchical/hierarchical.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "ctran/engine/world.hpp"
#include "gpu/cpu_runtime.hpp"
#include "transport/nvl/group.hpp"

namespace torch::comms::ctran::test {
namespace {

const gpu::Runtime& cpu = gpu::Runtime::cpu();

// One rank with what it brings, and a stream.
struct Member {
  Rank& rank;
  const HostTopology& hosts;
  std::unique_ptr<HierarchicalCollectives> across;
  gpu::NativeStream stream;

  HierarchicalCollectives::HierarchicalStep how(milliseconds limit = kLong) const {
    return {limit, stream};
  }
  void synchronize() const { cpu.synchronize(stream); }
  std::optional<CommError> stopped() const { return across->failure({.op = "test"}); }
};

class GpeTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TORCHCOMM_KERNELS_LIBRARY", TC_TEST_STAND_IN_DIR "/libstand_in_kernels.so", 1);
  }
  void TearDown() override { ::unsetenv("TORCHCOMM_KERNELS_LIBRARY"); }

  static void on_hosts(const std::vector<std::string>& names,
                       const std::function<void(Member&)>& body) {
    std::map<std::string, int> numbers;
    std::vector<int> host_of;
    for (const auto& name : names)
      host_of.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
    const auto hosts = make_host_topology(host_of);
    std::deque<transport::nvl::test::Board> boards;
    for (const auto& one : hosts.ranks) boards.emplace_back(static_cast<int>(one.size()));
    World world{.size = static_cast<int>(names.size()), .links = LinkPolicy::kAuto, .hosts = names};
    run(world, [&](Rank& self) {
      const auto place = hosts.host_ranks[static_cast<size_t>(self.rank())];
      const auto& here = hosts.ranks[static_cast<size_t>(place.host)];
      const auto runtime = gpu::Runtime::shared_cpu();
      HierarchicalCollectives::Options options{
          .rank = self.rank(),
          .topology = hosts,
          .library = KernelLibrary::load(cpu),
          .runtime = runtime,
          .team = nullptr,
          .rail = nullptr,
          .chunk_sizes = {.part_bytes = 4096, .small_bytes = 64}};
      if (here.size() > 1)
        options.team =
            DeviceTeam::create(place.local_rank, static_cast<int>(here.size()), 0, runtime, "",
                               boards[static_cast<size_t>(place.host)].of(place.local_rank))
                .team;
      if (place.local_rank < hosts.rails)
        options.rail = self.group->split(hosts.rail(place.local_rank), "rail", kLong);
      Member member{self, hosts, std::make_unique<HierarchicalCollectives>(std::move(options)),
                    cpu.create_stream(false)};
      body(member);
      member.synchronize();
      self.sync();
      member.across.reset();
      cpu.destroy_stream(member.stream);
    });
  }
};

const std::vector<std::vector<std::string>> kMaps{{"a", "a", "b", "b"},
                                                  {"a", "b"},
                                                  {"a", "b", "b", "a"},
                                                  {"a", "a", "b", "c"},
                                                  {"a", "a", "a", "b", "b"}};

TEST_F(GpeTest, SumsAreThoseOfAllRanksForAllSizes) {
  for (const auto& map : kMaps)
    on_hosts(map, [](Member& self) {
      const int size = self.rank.size();
      for (const size_t count : {0, 1, 5, 16, 17, 1000, 1024, 1025, 4096, 20'003}) {
        std::vector<int> data(count);
        std::iota(data.begin(), data.end(), self.rank.rank());
        self.across->all_reduce(data.data(), count, Dtype::kInt32, ReduceOpCode::kSum, self.how());
        self.synchronize();
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(data[i], static_cast<int>(i) * size + size * (size - 1) / 2) << i;
      }
    });
}

TEST_F(GpeTest, ManyOperationsFollowEachOther) {
  on_hosts({"a", "a", "b"}, [](Member& self) {
    constexpr size_t kCount = 3000;
    constexpr int kTimes = 60;
    std::vector<uint32_t> data(kCount, 1);
    uint32_t wanted = 1;
    for (int time = 0; time < kTimes; ++time, wanted *= 3)
      self.across->all_reduce(data.data(), kCount, Dtype::kUInt32, ReduceOpCode::kSum, self.how());
    self.across->barrier(self.how());
    self.synchronize();
    EXPECT_EQ(data.front(), wanted);
    EXPECT_EQ(data.back(), wanted);
    EXPECT_FALSE(self.stopped());
  });
}

TEST_F(GpeTest, ReplaysAskTheHostAnew) {
  for (const auto& map : kMaps)
    on_hosts(map, [](Member& self) {
      std::vector<uint64_t> data(5000, 1);
      gpu::cpu_begin_capture(self.stream);
      self.across->all_reduce(data.data(), data.size(), Dtype::kUInt64, ReduceOpCode::kSum,
                              self.how());
      const auto graph = gpu::cpu_end_capture(self.stream);
      for (int replay = 0; replay < 5; ++replay) gpu::cpu_launch_graph(graph, self.stream);
      self.synchronize();
      const auto size = static_cast<uint64_t>(self.rank.size());
      EXPECT_EQ(data.back(), size * size * size * size * size);
    });
}

TEST_F(GpeTest, APeerThatDiesBetweenHostsIsNamedAndNothingHangs) {
  on_hosts({"a", "b"}, [](Member& self) {
    std::vector<float> data(5000, 1);
    if (self.rank.rank() == 1) return self.rank.group->link_context()->shut_down();
    self.across->all_reduce(data.data(), data.size(), Dtype::kFloat32, ReduceOpCode::kSum,
                            self.how());
    self.synchronize();
    const auto error = self.stopped();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::kPeerFailed) << error->what();
    EXPECT_EQ(error->context().peer, 1);
    EXPECT_TRUE(std::isnan(data.front()) && std::isnan(data.back()));
  });
}

TEST_F(GpeTest, TheLimitOfTheHostEndsTheDeviceWithItsError) {
  on_hosts({"a", "b"}, [](Member& self) {
    std::vector<float> data(5000, 1);
    if (self.rank.rank() == 0) {
      self.across->all_reduce(data.data(), data.size(), Dtype::kFloat32, ReduceOpCode::kSum,
                              self.how(milliseconds(100)));
      self.synchronize();
      const auto error = self.stopped();
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::kTimeout) << error->what();
      EXPECT_TRUE(std::isnan(data.back()));
    }
    self.rank.sync();
  });
}

TEST_F(GpeTest, OtherSizesInsideAHostAreAMismatch) {
  on_hosts({"a", "a"}, [](Member& self) {
    const size_t bytes = self.rank.rank() == 0 ? 400 : 800;
    std::vector<char> input(bytes), output(2 * bytes);
    self.across->all_gather(output.data(), input.data(), bytes, self.how());
    self.synchronize();
    const auto error = self.stopped();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::kMismatch) << error->what();
    EXPECT_EQ(error->context().peer, 1 - self.rank.rank()) << error->what();
  });
}

TEST_F(GpeTest, AnAbortEndsBothAndWhatIsLaunchedLater) {
  on_hosts({"a", "b"}, [](Member& self) {
    std::vector<float> data(5000, 1);
    if (self.rank.rank() == 0) {
      self.across->all_reduce(data.data(), data.size(), Dtype::kFloat32, ReduceOpCode::kSum,
                              self.how());
      self.across->abort(CommError(Errc::kAborted, "abort() was called"));
      self.synchronize();
      EXPECT_TRUE(self.stopped());
      EXPECT_TRUE(std::isnan(data.back()));
      std::vector<float> later(3, 1);
      self.across->all_reduce(later.data(), later.size(), Dtype::kFloat32, ReduceOpCode::kSum,
                              self.how());
      self.synchronize();
      EXPECT_TRUE(std::isnan(later.back()));
    }
    self.rank.sync();
  });
}

TEST_F(GpeTest, OthersHearOfAnAbortWhyItWas) {
  on_hosts({"a", "b", "c"}, [](Member& self) {
    std::vector<float> data(5000, 1);
    if (self.rank.rank() == 2)
      self.across->abort(CommError(Errc::kPeerFailed, "rank 1 has died", {.culprits = {1}}));
    if (self.rank.rank() == 0) {
      self.across->all_reduce(data.data(), data.size(), Dtype::kFloat32, ReduceOpCode::kSum,
                              self.how());
      self.synchronize();
      const auto error = self.stopped();
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Errc::kPeerFailed) << error->what();
      EXPECT_EQ(error->context().culprits, std::vector<int>{1});
      EXPECT_NE(error->why().find("rank 1 has died"), std::string::npos) << error->why();
    }
    self.rank.sync();
  });
}

TEST_F(GpeTest, AfterItsEndReplaysLeaveAtOnce) {
  on_hosts({"a", "b"}, [](Member& self) {
    std::vector<float> data(100, 1);
    gpu::cpu_begin_capture(self.stream);
    self.across->all_reduce(data.data(), data.size(), Dtype::kFloat32, ReduceOpCode::kSum,
                            self.how());
    const auto graph = gpu::cpu_end_capture(self.stream);
    self.across->close();
    gpu::cpu_launch_graph(graph, self.stream);
    self.synchronize();
    EXPECT_TRUE(std::isnan(data.back()));
  });
}

}  // namespace
}  // namespace torch::comms::ctran::test
