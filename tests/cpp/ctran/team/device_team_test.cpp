#include "ctran/team/device_team.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torchcomms/base/error.hpp>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "ctran/team/member.hpp"

namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;
using kernels::KernelCall;
using kernels::StopReason;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;

using test::cpu;
using test::kVariable;
using test::library;

class TeamTest : public test::KernelsTest {};

// A rank that waits for what it launches.
struct Member : test::TeamMember {
  using TeamMember::TeamMember;
  void run(const KernelCall& call) {
    team->launch(call, stream);
    cpu.synchronize(stream);
  }
};

KernelCall call_of(Collective collective, const std::vector<float>& input,
                   std::vector<float>& output, size_t count) {
  KernelCall call{};
  call.collective = collective;
  call.dtype = Dtype::kFloat32;
  call.op = ReduceOpCode::kSum;
  call.count = count;
  call.input = input.data();
  call.output = output.data();
  return call;
}

// rank * 1000 + i.
std::vector<float> sample(int rank, size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(rank * 1000));
  return values;
}

void check_every_collective(Member& member, size_t count) {
  const int rank = member.rank, size = member.size;
  const auto ranks = static_cast<size_t>(size), own = static_cast<size_t>(rank);
  const auto one = sample(rank, count), all = sample(rank, ranks * count);
  const auto ranks_sum = static_cast<float>(size * (size - 1) / 2 * 1000);
  std::vector<float> into(ranks * count, -1);
  const auto expect = [&](const char* what, size_t first, size_t length, auto value) {
    for (size_t i = 0; i < length; ++i) require(into[first + i] == value(i), what);
  };
  const auto at = [](size_t i) { return static_cast<float>(i); };
  member.run(call_of(Collective::kAllReduce, one, into, count));
  expect("all_reduce", 0, count, [&](size_t i) { return ranks_sum + at(ranks * i); });
  member.run(call_of(Collective::kReduceScatter, all, into, count));
  expect("reduce_scatter", 0, count,
         [&](size_t i) { return ranks_sum + at(ranks * (own * count + i)); });
  member.run(call_of(Collective::kAllGather, one, into, count));
  for (size_t peer = 0; peer < ranks; ++peer)
    expect("all_gather", peer * count, count, [&](size_t i) { return at(peer * 1000 + i); });
  member.run(call_of(Collective::kAllToAll, all, into, count));
  for (size_t peer = 0; peer < ranks; ++peer)
    expect("all_to_all", peer * count, count,
           [&](size_t i) { return at(peer * 1000 + own * count + i); });
  const int root = size - 1;
  const auto rooted = [&](Collective collective, const std::vector<float>& input) {
    auto call = call_of(collective, input, into, count);
    call.root = root;
    member.run(call);
  };
  into.assign(into.size(), -1);
  rooted(Collective::kBroadcast, one);
  expect("broadcast", 0, count, [&](size_t i) { return at(static_cast<size_t>(root) * 1000 + i); });
  rooted(Collective::kScatter, all);
  expect("scatter", 0, count,
         [&](size_t i) { return at(static_cast<size_t>(root) * 1000 + own * count + i); });
  rooted(Collective::kReduce, one);
  if (rank == root) expect("reduce", 0, count, [&](size_t i) { return ranks_sum + at(ranks * i); });
  rooted(Collective::kGather, one);
  for (size_t peer = 0; peer < ranks && rank == root; ++peer)
    expect("gather", peer * count, count, [&](size_t i) { return at(peer * 1000 + i); });
  member.run(call_of(Collective::kBarrier, one, into, 0));
  require(!member.team->failure(), "nothing stopped");
}

TEST_F(TeamTest, RunsEveryCollectiveBetweenProcesses) {
  EXPECT_EQ(on_processes(3,
                         [](int rank, const AllGatherStrings& exchange) {
                           Member member(rank, 3, exchange);
                           for (const size_t count : {0, 1, 1000, 40000})
                             check_every_collective(member, count);
                         }),
            0);
}

TEST_F(TeamTest, RunsEveryCollectiveBetweenThreads) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    check_every_collective(member, 20000);
  });
}

TEST_F(TeamTest, RepeatsWhatWasCaptured) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    auto values = sample(rank, 10);
    gpu::cpu_begin_capture(member.stream);
    auto call = call_of(Collective::kAllReduce, values, values, values.size());
    member.team->launch(call, member.stream);
    const auto graph = gpu::cpu_end_capture(member.stream);
    float want = 1000;
    for (int replay = 0; replay < 20; ++replay, want *= 2)
      gpu::cpu_launch_graph(graph, member.stream);
    cpu.synchronize(member.stream);
    EXPECT_EQ(values[0], want / 2);
  });
}

TEST_F(TeamTest, ALimitEndsALaunchAndAllLaterOnesAndTellsWhomItWaitedFor) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 1) {
      exchange("");
      return;
    }
    auto values = sample(rank, 10);
    auto call = call_of(Collective::kAllReduce, values, values, values.size());
    call.timeout_ns = 20'000'000;
    member.run(call);
    const auto stopped = member.team->failure();
    ASSERT_TRUE(stopped);
    EXPECT_EQ(stopped->reason, StopReason::kTimeout);
    EXPECT_EQ(stopped->collective, Collective::kAllReduce);
    EXPECT_EQ(stopped->waited_for, 1);
    EXPECT_EQ(stopped->launch, 1u);
    EXPECT_TRUE(std::isnan(values[3]));
    call.timeout_ns = 0;
    values[3] = 0;
    member.run(call);
    EXPECT_TRUE(std::isnan(values[3]));
    exchange("");
  });
}

TEST_F(TeamTest, AbortEndsWhatRunsOnThisRank) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    if (rank == 0) {
      auto values = sample(rank, 10);
      member.team->launch(call_of(Collective::kAllReduce, values, values, values.size()),
                          member.stream);
      EXPECT_FALSE(member.team->failure());
      member.team->abort();
      cpu.synchronize(member.stream);
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kAborted);
      EXPECT_TRUE(std::isnan(values[0]));
    }
    exchange("");
  });
}

// All ranks of a team call, the last one something else; then a barrier.
void check_disagreement(int ranks, const std::string& what, KernelCall many, KernelCall one) {
  on_threads(ranks, [&](int rank, const AllGatherStrings& exchange) {
    Member member(rank, ranks, exchange);
    auto values = sample(rank, 4096);
    std::vector<float> output(static_cast<size_t>(ranks) * 4096);
    member.run(call_of(Collective::kBarrier, values, output, 0));
    auto call = rank == ranks - 1 ? one : many;
    call.input = values.data();
    call.output = output.data();
    call.timeout_ns = 20'000'000'000;
    member.run(call);
    // A root has nothing to wait for; all others find it in this launch.
    const bool waits = call.collective != Collective::kBroadcast;
    if (rank != ranks - 1 && waits) {
      ASSERT_TRUE(member.team->failure()) << what;
      EXPECT_TRUE(std::isnan(output[0])) << what << ": no result";
    }
    member.run(call_of(Collective::kBarrier, values, output, 0));
    const auto stopped = member.team->failure();
    ASSERT_TRUE(stopped) << what;
    EXPECT_EQ(stopped->reason, StopReason::kCallMismatch) << what;
    EXPECT_NE(stopped->waited_for, rank) << what;
    EXPECT_TRUE(ranks > 2 || stopped->waited_for == 1 - rank) << what;
    EXPECT_LE(stopped->launch, 3u) << what;
    output[0] = 0;
    member.run(call_of(Collective::kAllReduce, values, output, 1));
    EXPECT_TRUE(std::isnan(output[0])) << what << ": nothing goes on after it";
    exchange("");
  });
}

TEST_F(TeamTest, RanksThatCallDifferentThingsStop) {
  const std::vector<float> none;
  std::vector<float> nothing;
  const auto call = [&](Collective collective, size_t count) {
    return call_of(collective, none, nothing, count);
  };
  const auto sum = call(Collective::kAllReduce, 96), from_first = call(Collective::kBroadcast, 96);
  for (const int ranks : {2, 3}) {
    const auto check = [&](const char* what, const KernelCall& many, auto change) {
      auto one = many;
      change(one);
      check_disagreement(ranks, what, many, one);
    };
    check("count", sum, [](KernelCall& c) { c.count = 64; });
    check("dtype", sum, [](KernelCall& c) { c.dtype = Dtype::kInt32; });
    check("reduce operation", sum, [](KernelCall& c) { c.op = ReduceOpCode::kMax; });
    check("collective", sum, [](KernelCall& c) { c.collective = Collective::kAllGather; });
    check("barrier", sum, [](KernelCall& c) { c.collective = Collective::kBarrier; });
    check("root", from_first, [](KernelCall& c) { c.root = 1; });
  }
}

TEST_F(TeamTest, ALaunchThatOneRankLeavesOutStopsAllAtTheNextThatDiffers) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 3, exchange);
    auto values = sample(rank, 10);
    std::vector<float> output(30);
    for (const auto collective :
         {Collective::kBarrier, Collective::kAllReduce, Collective::kAllGather}) {
      if (rank == 2 && collective == Collective::kAllReduce) continue;
      auto call = call_of(collective, values, output, 10);
      call.timeout_ns = 20'000'000'000;
      member.run(call);
    }
    ASSERT_TRUE(member.team->failure());
    EXPECT_EQ(member.team->failure()->reason, StopReason::kCallMismatch);
    exchange("");
  });
}

TEST_F(TeamTest, SaysWhatItTakes) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    std::vector<float> values(1);
    auto call = call_of(Collective::kAllReduce, values, values, 1);
    EXPECT_TRUE(member.team->can_launch(call));
    int32_t blocks = 0;
    EXPECT_EQ(member.team->choose_algorithm(call, blocks), KernelAlgorithm::kOneShotLL);
    EXPECT_EQ(blocks, 1);
    call.op = ReduceOpCode::kBitAnd;
    EXPECT_FALSE(member.team->can_launch(call));
    EXPECT_THROW(member.team->launch(call, member.stream), CommError);
    EXPECT_EQ(member.team->architectures(), "host");
    EXPECT_GT(member.team->workspace_bytes(), 0u);
  });
}

// The ranks of a team whose workspaces grow; rank 0 alone has asked for that.
struct Growing : Member {
  Growing(int rank, int size, const AllGatherStrings& exchange)
      : Member(rank, size, exchange, gpu::Runtime::shared_cpu(),
               rank == 0 ? DeviceTeam::WorkspaceExtent::kPartial
                         : DeviceTeam::WorkspaceExtent::kFull) {}
};

const auto nothing = [] {};

void check_deferred_workspace(int rank, const AllGatherStrings& exchange) {
  Growing member(rank, 3, exchange);
  auto& team = *member.team;
  const auto bytes = team.workspace_bytes();
  check_every_collective(member, 1000);
  constexpr size_t kLarge = 40000;
  std::vector<float> values(kLarge);
  const auto large = call_of(Collective::kAllReduce, values, values, kLarge);
  require(team.needs_full_workspace(large), "large ones lack room");
  require(team.control()->is_partial != 0, "kernels know");
  require(team.allocate_rest(nothing).empty(), "they get it");
  require(!team.needs_full_workspace(large), "they have it");
  require(team.control()->is_partial == 0, "kernels know that, too");
  require(team.workspace_bytes() > bytes, "which takes memory");
  check_every_collective(member, kLarge);
  require(team.allocate_rest(nothing).empty(), "once for all");
}

// Rank 0 grows while the others are elsewhere, and then they do.
void check_deferred_workspace_alone(int rank, const AllGatherStrings& exchange) {
  Growing member(rank, 3, exchange);
  if (rank == 0) require(member.team->allocate_rest(nothing).empty(), "it gets the rest");
  exchange("");
  if (rank != 0) require(member.team->allocate_rest(nothing).empty(), "so do they");
  check_every_collective(member, 40000);
}

TEST_F(TeamTest, GrowsWhateverTheOtherRanksDo) {
  EXPECT_EQ(on_processes(3, check_deferred_workspace_alone), 0);
}

// Rank 1 has ended its team, or aborted it.
void check_deferred_workspace_without_a_rank(int rank, const AllGatherStrings& exchange,
                                             bool aborts) {
  auto member = std::make_unique<Growing>(rank, 3, exchange);
  if (rank == 1 && aborts) member->team->abort();
  if (rank == 1 && !aborts) member.reset();
  exchange("");
  if (rank != 1) {
    try {
      (void)member->team->allocate_rest(nothing);
      require(false, "nothing was thrown");
    } catch (const CommError& e) {
      require(e.code() == Errc::kPeerFailed, e.what());
    }
  }
  exchange("");
}

// Rank 1 has no memory for it at the first attempt, which it comes to when rank 0 is through both.
void check_deferred_workspace_tried_again(int rank, const AllGatherStrings& exchange) {
  Growing member(rank, 3, exchange);
  rlimit most{};
  ::getrlimit(RLIMIT_FSIZE, &most);  // memory of the stand-in's devices is in files
  const rlimit none{1, most.rlim_max};
  ::signal(SIGXFSZ, SIG_IGN);
  if (rank == 1) ::setrlimit(RLIMIT_FSIZE, &none);
  exchange("");
  if (rank == 0) {
    const auto why = member.team->allocate_rest(nothing);
    require(why.starts_with("rank 1: "), why.c_str());
  }
  exchange("");
  if (rank == 1) ::setrlimit(RLIMIT_FSIZE, &most);
  exchange("");
  if (rank == 0) require(member.team->allocate_rest(nothing).empty(), "now it gets it");
  exchange("");
  if (rank != 0) {
    require(member.team->allocate_rest(nothing).starts_with("rank 1: "), "the first attempt");
    require(member.team->allocate_rest(nothing).empty(), "the second one");
  }
  check_every_collective(member, 40000);
}

TEST_F(TeamTest, AttemptsToGrowAreTheSameOnAllRanks) {
  EXPECT_EQ(on_processes(3, check_deferred_workspace_tried_again), 0);
}

TEST_F(TeamTest, GrowthNeedsAllRanks) {
  for (const bool aborts : {false, true})
    EXPECT_EQ(on_processes(3,
                           [aborts](int rank, const AllGatherStrings& exchange) {
                             check_deferred_workspace_without_a_rank(rank, exchange, aborts);
                           }),
              0);
}

// Rank 1 does not run, so its threads do not: a wait ends by what is looked at.
TEST_F(TeamTest, GrowthEndsByWhatIsLookedAtAndByAnAbort) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    auto texts = exchange("");  // of this call alone
    transport::nvl::RankContext context{rank, 2, 0, gpu::Runtime::shared_cpu(), nullptr};
    context.driver = gpu::Driver::of(*context.runtime);
    auto result = transport::nvl::SymmetricMemory::make(
        context, {size_t{4} << 20, "a test", "", size_t{2} << 20}, exchange);
    require(result.memory != nullptr && !result.memory->is_complete(), result.error.c_str());
    DeferredWorkspace deferred(context, *result.memory);
    const auto addresses = exchange(deferred.address());
    if (rank == 0) {
      deferred.start(addresses);
      int looks = 0;
      const auto interrupt_check = [&] {
        if (++looks == 3) throw CommError(Errc::kTimeout, "late");
      };
      EXPECT_THROW(deferred.allocate_collectively(interrupt_check), CommError);
      std::thread aborts([&] { deferred.stop(); });
      EXPECT_THROW(deferred.allocate_collectively(nothing), CommError);
      aborts.join();
    }
    exchange("");
  });
}

TEST_F(TeamTest, GrowsForTheCallsThatNeedIt) {
  EXPECT_EQ(on_processes(3, check_deferred_workspace), 0);
}

TEST_F(TeamTest, IsWholeAtOnceUnlessSomebodyAsksForLess) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    std::vector<float> values(40000);
    EXPECT_FALSE(member.team->needs_full_workspace(
        call_of(Collective::kAllReduce, values, values, values.size())));
    EXPECT_FALSE(member.team->needs_full_workspace(kernels::QuantizedReduceScatter{}));
    EXPECT_EQ(member.team->allocate_rest(nothing), "");
  });
}

// Teams of two ranks, a process each, as most are made: one after the other, and some at once.
void check_default_extent(int rank, const AllGatherStrings& exchange) {
  const auto host = gpu::Runtime::shared_cpu();
  const auto make = [&](DeviceTeam::WorkspaceExtent extent =
                            DeviceTeam::WorkspaceExtent::kDefault) {
    return std::make_unique<Member>(rank, 2, exchange, host, extent);
  };
  std::vector<float> values(40000);
  const auto large = call_of(Collective::kAllReduce, values, values, values.size());
  const auto is_whole = [&](const std::unique_ptr<Member>& member) {
    return !member->team->needs_full_workspace(large);
  };
  auto alone = DeviceTeam::create(
      0, 1, 0, host, "", [](const std::string& text) { return std::vector<std::string>{text}; });
  require(alone.team != nullptr, alone.unavailable_reason.c_str());
  auto first = make();
  require(is_whole(first), "the first one is whole: a rank alone does not count");
  auto second = make();
  require(!is_whole(second), "a further one grows");
  require(is_whole(make(DeviceTeam::WorkspaceExtent::kFull)), "unless it was asked for");
  check_every_collective(*second, 1000);
  require(second->team->allocate_rest(nothing).empty(), "it gets the rest");
  check_every_collective(*second, 40000);
  first.reset();
  require(!is_whole(make()), "the second one is still there");
  second.reset();
  require(is_whole(make()), "now there is none");
}

TEST_F(TeamTest, TheFirstOfADeviceIsWholeAndFurtherOnesGrow) {
  EXPECT_EQ(on_processes(2, check_default_extent), 0);
}

// What all ranks are told where rank 1 has `file` for its library.
void expect_why(const std::string& why) {
  on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
    const auto result = DeviceTeam::create(rank, 2, 0, gpu::Runtime::shared_cpu(), "", exchange);
    EXPECT_FALSE(result.team);
    EXPECT_NE(result.unavailable_reason.find(why), std::string::npos) << result.unavailable_reason;
  });
}

TEST_F(TeamTest, IsNoneWithoutALibraryOfThisBuild) {
  ::unsetenv(kVariable);
  expect_why("rank 0: this build has no kernel library");
  ::setenv(kVariable, "/nowhere.so", 1);
  expect_why("kernel library: /nowhere.so");
  ::setenv(kVariable, library("libstand_in_kernels_other.so").c_str(), 1);
  expect_why("interface " + std::to_string(kernels::kAbi + 1));
  ::setenv(kVariable, library("libstand_in_nccl.so").c_str(), 1);
  expect_why("torchcomms_kernels");
}

TEST_F(TeamTest, IsNoneForTooManyRanks) {
  const AllGatherStrings nobody = [](const std::string&) -> std::vector<std::string> {
    throw std::logic_error("nobody was to be asked");
  };
  const auto result =
      DeviceTeam::create(0, kernels::kMaxRanks + 1, 0, gpu::Runtime::shared_cpu(), "", nobody);
  EXPECT_NE(result.unavailable_reason.find("up to 8 ranks"), std::string::npos)
      << result.unavailable_reason;
}

TEST_F(TeamTest, OfOneRankTakesNoCollectives) {
  const test::TeamMember alone(0, 1, [](const std::string& text) { return std::vector{text}; });
  kernels::KernelCall call{};
  call.collective = kernels::Collective::kBarrier;
  EXPECT_FALSE(alone.team->can_launch(call));
  EXPECT_FALSE(alone.team->failure());
}

}  // namespace
}  // namespace torch::comms::ctran
