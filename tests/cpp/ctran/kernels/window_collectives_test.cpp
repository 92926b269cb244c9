#include "ctran/kernels/windows/window_copies.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ctran/kernels/host/call_fingerprint.hpp"
#include "ctran/kernels/host/launch_plan.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kAllToAll,
                                       Collective::kBroadcast};
// The last one is of several rounds for one block.
constexpr size_t kSizes[] = {0, 1, 16, 4097, kWindowTile, kWindowTile + 1, 20 * kWindowTile + 5};

size_t parts(Collective collective, int ranks) {
  return collective == Collective::kBroadcast ? 1 : static_cast<size_t>(ranks);
}
size_t parts_of_input(Collective collective, int ranks) {
  return collective == Collective::kAllToAll ? static_cast<size_t>(ranks) : 1;
}

// All ranks of a launch, whose blocks run the tiles that kernels would.
class Launch {
 public:
  Launch(Collective collective, int ranks, int root, size_t bytes, int blocks,
         CopyMethod copy_method = CopyMethod::kAutomatic)
      : memory_(static_cast<size_t>(ranks)), inputs_(static_cast<size_t>(ranks)) {
    std::mt19937_64 random(bytes + static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      auto& input = inputs_[static_cast<size_t>(r)];
      input.resize(parts_of_input(collective, ranks) * bytes + 1);
      std::ranges::generate(input, [&] { return static_cast<unsigned char>(random() >> 32); });
      memory_[static_cast<size_t>(r)].resize(parts(collective, ranks) * bytes + 1);
    }
    writes_.assign(memory_.size(), std::vector<uint8_t>(memory_[0].size(), 0));
    for (int r = 0; r < ranks; ++r) {
      TeamDescriptor team{};
      team.rank = r;
      team.size = ranks;
      WindowCollectiveCall call{};
      call.call.collective = collective;
      call.call.dtype = Dtype::kUInt8;
      call.call.root = root;
      call.call.count = bytes;
      call.call.blocks = blocks;
      call.call.input = inputs_[static_cast<size_t>(r)].data();
      call.call.output = memory_[static_cast<size_t>(r)].data();
      for (int peer = 0; peer < ranks; ++peer) {
        call.memory[peer] = memory_[static_cast<size_t>(peer)].data();
        call.bytes[peer] = memory_[static_cast<size_t>(peer)].size();
      }
      call.copy_method = copy_method;
      EXPECT_TRUE(is_valid(team, call));
      calls_.emplace_back(team, call);
      call.copy_method = CopyMethod::kAutomatic;
      params_.push_back(params_of(team, call));
    }
  }

  // Round after round, the root first, as who forwards waits for it.
  void run() {
    const int root = params_[0].root, ranks = params_[0].size;
    for (const auto& p : params_) {
      EXPECT_EQ(p.blocks, params_[0].blocks);
      EXPECT_EQ(p.rounds.count, params_[0].rounds.count);
      if (p.own_to != nullptr)
        for (int block = 0; block < p.local_copy_blocks; ++block)
          carry(p.rank, p.own_to, p.own, p.bytes, block, p.local_copy_blocks, 0,
                tiles_of_block(p.bytes, p.local_copy_blocks, block));
    }
    for (int block = 0; block < params_[0].blocks; ++block)
      for (uint64_t round = 0; round < params_[0].rounds.count; ++round)
        for (int i = 0; i < ranks; ++i)
          push(params_[static_cast<size_t>((root + i) % ranks)], block, round);
  }

  // By copies, a stage after the other.
  void copy() {
    for (int stage = 0; stage < stages_of(calls_[0].first, calls_[0].second); ++stage)
      for (const auto& [team, call] : calls_) {
        const DeviceCopies copies = copies_of(team, call, stage);
        for (int i = 0; i < copies.count; ++i) carry(copies.all[i]);
        if (copies.local.bytes != 0) carry(copies.local);
      }
  }

  void check() const {
    const auto& any = params_[0];
    const auto ranks = static_cast<size_t>(any.size);
    for (size_t r = 0; r < ranks; ++r) {
      std::vector<unsigned char> want;
      for (size_t source = 0; source < ranks; ++source) {
        if (any.collective == Collective::kBroadcast && source != static_cast<size_t>(any.root))
          continue;
        const auto& input = inputs_[source];
        const size_t at = any.collective == Collective::kAllToAll ? r * any.bytes : 0;
        want.insert(want.end(), input.begin() + static_cast<ptrdiff_t>(at),
                    input.begin() + static_cast<ptrdiff_t>(at + any.bytes));
      }
      want.push_back(0);  // behind the output nothing is written
      EXPECT_EQ(memory_[r], want) << "rank " << r;
      std::vector<uint8_t> once(want.size(), 1);
      once.back() = 0;
      EXPECT_EQ(writes_[r], once) << "rank " << r;
    }
  }

 private:
  void push(const WindowCollectiveParams& p, int block, uint64_t round) {
    for (int peer = 0; peer < p.size; ++peer) {
      const PushedRange what = push_of(p.collective, p.root, p.bytes, p.forwarded, p.rank, peer);
      if ((p.push_to >> peer & 1) == 0) {
        EXPECT_EQ(what.bytes, 0u);
        continue;
      }
      EXPECT_NE(params_[static_cast<size_t>(peer)].pushed_from >> p.rank & 1, 0u);
      const auto tiles = tiles_of_block(what.bytes, p.blocks, block);
      const auto first = std::min(round * p.rounds.tiles, tiles);
      carry(peer, reinterpret_cast<char*>(memory_[static_cast<size_t>(peer)].data()) + what.into,
            (what.is_forwarded ? p.output : p.input) + what.from, what.bytes, block, p.blocks,
            first, std::min(first + p.rounds.tiles, tiles));
    }
  }
  void carry(int to_rank, char* to, const char* from, size_t bytes, int block, int blocks,
             uint64_t first, uint64_t end) {
    const auto rank = static_cast<size_t>(to_rank);
    const auto* const begin = reinterpret_cast<char*>(memory_[rank].data());
    for (uint64_t i = first; i < end; ++i) {
      const size_t at =
                       (static_cast<size_t>(block) + i * static_cast<size_t>(blocks)) * kWindowTile,
                   length = std::min(kWindowTile, bytes - at);
      ASSERT_LT(at, bytes);
      const UnalignedEnds ends = ends_of(reinterpret_cast<uintptr_t>(to + at), length);
      ASSERT_EQ(ends.head + ends.middle + ends.tail, length);
      std::copy_n(from + at, length, to + at);
      for (size_t b = 0; b < length; ++b) ++writes_[rank][static_cast<size_t>(to - begin) + at + b];
    }
  }

  void carry(const DeviceCopy& copy) {
    const auto* const to = reinterpret_cast<unsigned char*>(copy.to);
    for (size_t rank = 0; rank < memory_.size(); ++rank) {
      const auto* const begin = memory_[rank].data();
      if (to < begin || to >= begin + memory_[rank].size()) continue;
      std::copy_n(copy.from, copy.bytes, copy.to);
      const auto at = static_cast<size_t>(to - begin);
      for (size_t b = 0; b < copy.bytes; ++b) ++writes_[rank].at(at + b);
      return;
    }
    ADD_FAILURE() << "a copy goes nowhere";
  }

  std::vector<std::vector<unsigned char>> memory_, inputs_;
  std::vector<std::pair<TeamDescriptor, WindowCollectiveCall>> calls_;
  std::vector<std::vector<uint8_t>> writes_;
  std::vector<WindowCollectiveParams> params_;
};

TEST(RegionPlanTest, EveryByteIsPushedOnceAndForwardedOnlyOnceItIsThere) {
  for (const auto collective : kCollectives)
    for (const int ranks : {2, 3, 5})
      for (const int root : {0, ranks - 1})
        for (const size_t bytes : kSizes)
          for (const int blocks : {0, 1, 7}) {
            if (root != 0 && collective != Collective::kBroadcast) continue;
            SCOPED_TRACE(std::to_string(static_cast<int>(collective)) + " ranks " +
                         std::to_string(ranks) + " root " + std::to_string(root) + " bytes " +
                         std::to_string(bytes) + " blocks " + std::to_string(blocks));
            Launch launch(collective, ranks, root, bytes, blocks);
            launch.run();
            launch.check();
            if (HasFailure()) return;
          }
}

TEST(RegionPlanTest, EveryByteIsCopiedOnceByCopyEngines) {
  for (const auto collective : kCollectives)
    for (const int ranks : {2, 3, 5})
      for (const int root : {0, ranks - 1})
        for (const size_t bytes : kSizes) {
          SCOPED_TRACE(std::to_string(static_cast<int>(collective)) + " ranks " +
                       std::to_string(ranks) + " root " + std::to_string(root) + " bytes " +
                       std::to_string(bytes));
          Launch launch(collective, ranks, root, bytes, 0, CopyMethod::kCopyEngine);
          launch.copy();
          launch.check();
          if (HasFailure()) return;
        }
}

TEST(RegionPlanTest, CopiesStayInTheMemoryOfThePeerWhateverThatHas) {
  char memory[2][64] = {};
  TeamDescriptor team{};
  team.size = 2;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllGather;
  call.call.dtype = Dtype::kUInt8;
  call.call.count = 32;
  call.call.input = memory[0];
  call.call.output = memory[0];
  call.copy_method = CopyMethod::kCopyEngine;
  for (int rank = 0; rank < 2; ++rank) call.memory[rank] = memory[rank], call.bytes[rank] = 64;
  EXPECT_EQ(copies_of(team, call, 0).count, 1);
  call.bytes[1] = 31;
  EXPECT_EQ(copies_of(team, call, 0).count, 0);
  const auto params = params_of(team, call);
  EXPECT_EQ(params.location.bytes, 64u);
  EXPECT_EQ(params.blocks + params.local_copy_blocks, 1);
  EXPECT_EQ(params.bytes, 0u);
}

TEST(RegionPlanTest, InPlaceThereIsNothingToCopy) {
  std::vector<char> memory(4 * 1000);
  TeamDescriptor team{};
  team.rank = 2;
  team.size = 4;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllGather;
  call.call.dtype = Dtype::kUInt8;
  call.call.count = 1000;
  call.call.output = call.memory[2] = memory.data();
  call.call.input = memory.data() + 2000;
  EXPECT_EQ(params_of(team, call).local_copy_blocks, 0);
  EXPECT_EQ(copies_of(team, call, 0).local.bytes, 0u);
  call.call.input = memory.data() + 1000;
  EXPECT_GT(params_of(team, call).local_copy_blocks, 0);
  EXPECT_EQ(copies_of(team, call, 0).local.bytes, 1000u);
}

TEST(RegionPlanTest, EveryByteOfAResultIsMadeByOneRankAndGoesWhereItIsWanted) {
  constexpr int kRoot = 1;
  std::vector<char> memory(64);
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter})
    for (const int ranks : {2, 3, 8})
      for (const size_t bytes : kSizes) {
        SCOPED_TRACE(std::to_string(static_cast<int>(collective)) + " ranks " +
                     std::to_string(ranks) + " bytes " + std::to_string(bytes));
        const bool has_parts = collective == Collective::kReduceScatter;
        size_t end = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          TeamDescriptor team{};
          team.rank = rank;
          team.size = ranks;
          WindowCollectiveCall call{};
          call.call.collective = collective;
          call.call.dtype = Dtype::kUInt8;
          call.call.root = kRoot;
          call.call.count = bytes;
          call.memory[rank] = memory.data();
          call.call.input = memory.data() + 5;
          call.call.output = memory.data() + 5;
          EXPECT_TRUE(is_valid(team, call));
          const auto p = params_of(team, call);
          const TensorRange range = reduce_range_of(collective, p.bytes, p.part, rank);
          EXPECT_EQ(range.begin, std::min(end, has_parts ? end : bytes));
          EXPECT_EQ(range.end - range.begin, has_parts ? bytes : range.end - end);
          end = range.end;
          const uint32_t all = (1u << ranks) - 1;
          EXPECT_EQ(p.write_to, collective == Collective::kAllReduce ? all
                                : has_parts                          ? 0u
                                                                     : 1u << kRoot);
          EXPECT_EQ(p.push_to, all & ~(1u << rank)) << "all are read";
          EXPECT_EQ(p.pushed_from, p.push_to);
          EXPECT_EQ(p.location.offset, bytes == 0 ? 0u : 5u);
          EXPECT_EQ(p.location.bytes, has_parts ? bytes * static_cast<size_t>(ranks) : bytes);
          EXPECT_EQ(p.local_copy_blocks, 0);
        }
        EXPECT_EQ(end, has_parts ? bytes * static_cast<size_t>(ranks) : bytes);
      }
}

TEST(RegionPlanTest, ReductionsThatCannotReadWhereOperandsLieAreRefused) {
  char memory[64] = {};
  TeamDescriptor team{};
  team.size = 2;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllReduce;
  call.call.dtype = Dtype::kFloat32;
  call.call.count = 4;
  call.call.input = call.call.output = call.memory[0] = memory;
  EXPECT_TRUE(is_valid(team, call));
  const auto refuses = [&](auto change) {
    auto other = call;
    change(other);
    return !is_valid(team, other);
  };
  EXPECT_FALSE(refuses([](auto& c) { c.copy_method = CopyMethod::kCopyEngine; }));
  EXPECT_TRUE(refuses([](auto& c) { c.call.op = ReduceOpCode::kPremulSum; })) << "whose factor?";
  EXPECT_TRUE(refuses([](auto& c) { c.call.op = ReduceOpCode::kBitAnd; })) << "of floats";
  EXPECT_TRUE(refuses([&](auto& c) { c.call.output = memory + 16; })) << "not in place";
  call.call.collective = Collective::kReduce;
  call.call.root = 1;
  call.call.output = nullptr;
  EXPECT_TRUE(is_valid(team, call)) << "only the root has an output";
  call.call.root = 0;
  EXPECT_FALSE(is_valid(team, call));
  call.call.collective = Collective::kReduceScatter;
  EXPECT_FALSE(is_valid(team, call));
  call.call.output = memory + 32;
  EXPECT_TRUE(is_valid(team, call)) << "anywhere";
}

// Of reductions, which have nothing to begin.
struct NoLocalCopy {
  static int begin(const DeviceCopy&) { return ADD_FAILURE() << "no own copy", 1; }
  static int join() { return ADD_FAILURE() << "no own copy", 1; }
};

// All-reduces of bytes by copies, two after each other. What each rank has on its stream goes on
// whenever it can: a rank waits where it reduces, until the others have come there, and where they
// synchronize.
class Sums {
 public:
  static constexpr size_t kBeside = 3;  // bytes before and after every tensor

  Sums(int ranks, size_t bytes) : bytes_(bytes) {
    const auto n = static_cast<size_t>(ranks);
    for (size_t r = 0; r < n; ++r) {
      memory_.emplace_back(bytes + 2 * kBeside, static_cast<unsigned char>(200));
      for (size_t i = 0; i < bytes; ++i)
        memory_[r][kBeside + i] = static_cast<unsigned char>(i * 7 + r * 31);
    }
    before_ = memory_;
    for (size_t r = 0; r < n; ++r) {
      auto& [team, call] = calls_.emplace_back();
      team.rank = static_cast<int>(r);
      team.size = ranks;
      call.call.collective = Collective::kAllReduce;
      call.call.dtype = Dtype::kUInt8;
      call.call.count = bytes;
      call.call.input = call.call.output = memory_[r].data() + kBeside;
      call.copy_method = CopyMethod::kCopyEngine;
      for (size_t peer = 0; peer < n; ++peer) {
        call.memory[peer] = memory_[peer].data();
        call.bytes[peer] = memory_[peer].size();
      }
      EXPECT_TRUE(is_valid(team, call));
    }
  }

  void run(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Stream> streams;
    for (const auto& [team, call] : calls_) {
      auto& stream = streams.emplace_back();
      for (int i = 0; i < kLaunches; ++i) enqueue(team, call, stream);
      EXPECT_EQ(std::ranges::count_if(stream.steps, &Step::waits), kLaunches * 2);
    }
    for (size_t over = 0; over < streams.size();) {
      auto& stream = streams[random() % streams.size()];
      if (stream.next == stream.steps.size()) continue;
      const auto& [waits, work] = stream.steps[stream.next];
      if (waits && !stream.waits) stream.waits = true, ++stream.come;
      if (waits && std::ranges::any_of(
                       streams, [&](const Stream& other) { return other.come < stream.come; }))
        continue;
      stream.waits = false;
      work();
      if (++stream.next == stream.steps.size()) ++over;
    }
  }

  // In the order of ranks, which matters.
  void check() const {
    auto wanted = before_;
    for (int launch = 0; launch < kLaunches; ++launch)
      for (size_t i = kBeside; i < kBeside + bytes_; ++i) {
        unsigned char sum = 0;
        for (const auto& one : wanted) sum = static_cast<unsigned char>(sum * 3 + one[i]);
        for (auto& one : wanted) one[i] = sum;
      }
    EXPECT_EQ(memory_, wanted);
  }

 private:
  static constexpr int kLaunches = 2;
  using Bytes = std::vector<unsigned char>;
  struct Step {
    bool waits;  // for the others to come to theirs
    std::function<void()> work;
  };
  struct Stream {
    std::vector<Step> steps;
    size_t next = 0, come = 0;  // come: to so many steps that wait
    bool waits = false;
  };

  static void enqueue(const TeamDescriptor& team, const WindowCollectiveCall& call,
                      Stream& stream) {
    const auto synchronize = [&] { return stream.steps.push_back({true, [] {}}), 0; };
    const auto reduce = [&] {
      const auto p = local_reduction_params(team, call);
      EXPECT_EQ(p.fingerprint, params_of(team, call).fingerprint);
      EXPECT_TRUE(p.has_same_offset);
      EXPECT_EQ(p.write_to, 1u << team.rank) << "in its own tensor";
      EXPECT_EQ(p.pushed_from, 0u) << "and is done when it has made its part";
      stream.steps.push_back(
          {true, [p] {
             for (size_t i = p.reduce_range.begin; i < p.reduce_range.end; ++i) {
               unsigned char sum = 0;
               for (int r = 0; r < p.size; ++r)
                 sum = static_cast<unsigned char>(
                     sum * 3 + static_cast<unsigned char>(p.memory[r][p.location.offset + i]));
               p.output[i] = static_cast<char>(sum);
             }
           }});
      return 0;
    };
    const auto copy = [&, own = call.memory[team.rank],
                       bytes = call.bytes[team.rank]](const DeviceCopy& one) {
      EXPECT_TRUE(one.from >= own && one.from + one.bytes <= static_cast<char*>(own) + bytes)
          << "a push";
      EXPECT_GT(one.bytes, 0u);
      stream.steps.push_back({false, [one] { std::copy_n(one.from, one.bytes, one.to); }});
      return 0;
    };
    NoLocalCopy local_copy;
    EXPECT_EQ(launch_with_copy_engines(team, call, synchronize, reduce, copy, local_copy), 0);
  }

  const size_t bytes_;
  std::vector<Bytes> memory_, before_;
  std::vector<std::pair<TeamDescriptor, WindowCollectiveCall>> calls_;
};

TEST(RegionPlanTest, AllReducesByCopiesMakeEveryByteInTheOrderOfRanks) {
  for (const int ranks : {2, 3, 8})
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{5003}})
      for (const uint64_t seed : {1, 2, 3}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes) + " bytes, seed " +
                     std::to_string(seed));
        Sums sums(ranks, bytes);
        sums.run(seed);
        sums.check();
        if (HasFailure()) return;
      }
}

TEST(RegionPlanTest, AnErrorEndsAnAllReduceByCopies) {
  std::vector<char> memory(4096);
  TeamDescriptor team{};
  team.size = 3;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllReduce;
  call.call.dtype = Dtype::kUInt8;
  call.call.count = memory.size();
  call.call.input = call.call.output = memory.data();
  for (int rank = 0; rank < team.size; ++rank)
    call.memory[rank] = memory.data(), call.bytes[rank] = memory.size();
  call.copy_method = CopyMethod::kCopyEngine;
  for (int wrong = 0; wrong < 4; ++wrong) {  // a reduction, two copies, a barrier
    int count = 0;
    const auto step = [&] { return count++ == wrong ? 7 : 0; };
    NoLocalCopy local_copy;
    EXPECT_EQ(launch_with_copy_engines(
                  team, call, step, step, [&](const DeviceCopy&) { return step(); }, local_copy),
              7);
    EXPECT_EQ(count, wrong + 1);
  }
}

TEST(RegionPlanTest, ReductionsThatLeaveNothingToCopyAreAsWithoutCopies) {
  for (const auto collective : {Collective::kReduce, Collective::kReduceScatter}) {
    WindowCollectiveCall call{};
    call.call.collective = collective;
    auto other = call;
    other.copy_method = CopyMethod::kCopyEngine;
    EXPECT_FALSE(uses_copy_engines(other));
    EXPECT_EQ(fingerprint_of(call), fingerprint_of(other)) << "ranks need not agree";
  }
}

TEST(RegionPlanTest, RanksWithAnotherNumberOfBlocksCallSomethingElse) {
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllReduce;
  auto other = call;
  other.call.blocks = 2;
  EXPECT_NE(fingerprint_of(call), fingerprint_of(other));
  for (auto* const one : {&call, &other}) one->copy_method = CopyMethod::kCopyEngine;
  EXPECT_EQ(fingerprint_of(call), fingerprint_of(other)) << "which have one";
}

TEST(RegionPlanTest, AllReducesByCopiesStayInTheMemoryOfThePeerWhateverThatHas) {
  std::vector<char> memory(1000);
  TeamDescriptor team{};
  team.size = 2;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllReduce;
  call.call.dtype = Dtype::kUInt8;
  call.call.count = memory.size();
  call.call.input = call.call.output = call.memory[0] = call.memory[1] = memory.data();
  call.bytes[0] = call.bytes[1] = memory.size();
  call.copy_method = CopyMethod::kCopyEngine;
  EXPECT_EQ(copies_of(team, call, 0).count, 1);
  call.bytes[1] = 100;
  EXPECT_EQ(copies_of(team, call, 0).count, 0);
  const auto params = params_of(team, call);
  EXPECT_EQ(params.location.bytes, 1000u);
  EXPECT_TRUE(params.has_same_offset);
  EXPECT_EQ(params.bytes, 0u);
}

TEST(RegionPlanTest, LongTransfersHaveMoreBlocksUnlessTheCallSaysHowMany) {
  std::vector<char> memory(1);
  TeamDescriptor team{};
  team.size = 2;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kAllGather;
  call.call.dtype = Dtype::kUInt8;
  call.call.input = call.call.output = call.memory[0] = memory.data();
  const auto blocks = [&](size_t bytes, int requested_blocks) {
    call.call.count = bytes;
    call.call.blocks = requested_blocks;
    return params_of(team, call).blocks;
  };
  EXPECT_EQ(blocks(size_t{8} << 20, 0), 16);
  EXPECT_EQ(blocks(size_t{128} << 20, 0), 32);
  EXPECT_EQ(blocks(size_t{128} << 20, 8), 8);
  EXPECT_EQ(blocks(size_t{128} << 20, 1000), kMaxWindowBlocks);
}

TEST(RegionPlanTest, LongReductionsOfMoreThanTwoRanksLeaveProcessorsAlone) {
  const auto blocks = [](Collective collective, size_t longest) {
    return blocks_of(4, collective, longest, 0);
  };
  EXPECT_EQ(blocks(Collective::kAllReduce, size_t{1} << 20), 32);
  EXPECT_EQ(blocks(Collective::kAllReduce, size_t{4} << 20), 16);
  EXPECT_EQ(blocks(Collective::kReduceScatter, size_t{64} << 20), 32);
  EXPECT_EQ(blocks(Collective::kAllGather, size_t{64} << 20), 64);
}

TEST(RegionPlanTest, OperandsOfLargeAllReducesArePushedWhereProcessorsMayBeTaken) {
  std::vector<char> memory(1);
  const auto params = [&](int ranks, size_t bytes,
                          const std::function<void(WindowCollectiveCall&)>& change) {
    TeamDescriptor team{};
    team.size = ranks;
    WindowCollectiveCall call{};
    call.call.collective = Collective::kAllReduce;
    call.call.dtype = Dtype::kBFloat16;
    call.call.count = bytes / 2;
    call.call.input = call.call.output = call.memory[0] = memory.data();
    change(call);
    return params_of(team, call);
  };
  constexpr size_t kMB = size_t{1} << 20;
  const auto nothing = [](WindowCollectiveCall&) {};
  const auto usual = params(4, 64 * kMB, nothing);
  EXPECT_TRUE(usual.pushes_operands);
  EXPECT_EQ(usual.blocks, 128);
  EXPECT_EQ(usual.rounds.count, 8u);  // 16 MB by 128 tiles of 16 KB
  EXPECT_TRUE(params(3, 16 * kMB, nothing).pushes_operands);
  EXPECT_TRUE(params(4, 64 * kMB, [](auto& c) { c.call.blocks = 96; }).pushes_operands);
  EXPECT_FALSE(params(2, 64 * kMB, nothing).pushes_operands);
  EXPECT_FALSE(params(5, 64 * kMB, nothing).pushes_operands);
  EXPECT_FALSE(params(4, 4 * kMB, nothing).pushes_operands);
  EXPECT_FALSE(params(4, 256 * kMB, nothing).pushes_operands);
  for (const auto& change : std::vector<std::function<void(WindowCollectiveCall&)>>{
           [](auto& c) { c.call.blocks = 16; },
           [](auto& c) { c.copy_method = CopyMethod::kCopyEngine; },
           [](auto& c) { c.call.op = ReduceOpCode::kMax; },
           [](auto& c) { c.call.collective = Collective::kReduce; }})
    EXPECT_FALSE(params(4, 64 * kMB, change).pushes_operands);
}

TEST(RegionPlanTest, ShortTransfersOfMoreThanTwoRanksAreStored) {
  KernelCall call{};
  call.collective = Collective::kAllGather;
  call.dtype = Dtype::kUInt8;
  call.count = size_t{1} << 20;
  EXPECT_EQ(default_copy_method(2, call), CopyMethod::kTma);
  EXPECT_EQ(default_copy_method(4, call), CopyMethod::kStores);
  call.count = size_t{8} << 20;
  EXPECT_EQ(default_copy_method(4, call), CopyMethod::kTma);
  call.collective = Collective::kBroadcast;  // a third goes through each of the others
  EXPECT_EQ(default_copy_method(4, call), CopyMethod::kStores);
}

TEST(RegionPlanTest, ABroadcastIsForwardedInRoundsOfSeveralTiles) {
  for (const size_t bytes : {size_t{1} << 20, size_t{256} << 20, size_t{1} << 34}) {
    const auto rounds = rounds_of_pushes(bytes, 16, true);
    EXPECT_GE(rounds.count * rounds.tiles, tiles_of_block(bytes, 16, 0));
    EXPECT_LE(rounds.count, 16u);
    EXPECT_LT((rounds.count - 1) * rounds.tiles, tiles_of_block(bytes, 16, 0));
    EXPECT_TRUE(rounds.count == 1 || rounds.tiles >= 8);
    EXPECT_EQ(rounds_of_pushes(bytes, 16, false).count, 1u);
  }
}

TEST(RegionPlanTest, CallsThatMakeNoSenseAreRefused) {
  char memory[64] = {};
  TeamDescriptor team{};
  team.size = 2;
  WindowCollectiveCall call{};
  call.call.collective = Collective::kBroadcast;
  call.call.dtype = Dtype::kUInt8;
  call.call.count = 16;
  call.call.root = 1;
  call.call.output = call.memory[0] = memory;
  EXPECT_TRUE(is_valid(team, call)) << "a rank that is not the root needs no input";
  const auto refuses = [&](auto change) {
    auto other = call;
    change(other);
    return !is_valid(team, other);
  };
  EXPECT_TRUE(refuses([](auto& c) { c.call.root = 0; })) << "the root has no input";
  EXPECT_TRUE(refuses([](auto& c) { c.call.root = 2; }));
  EXPECT_TRUE(refuses([](auto& c) { c.memory[0] = nullptr; }));
  EXPECT_TRUE(refuses([](auto& c) { c.call.output = nullptr; }));
  EXPECT_TRUE(refuses([](auto& c) { c.call.blocks = -1; }));
  EXPECT_TRUE(refuses([](auto& c) { c.call.collective = Collective::kAllReduce; }));
  EXPECT_TRUE(refuses([](auto& c) { c.call.algorithm = KernelAlgorithm::kOneShotLL; }));
  EXPECT_TRUE(refuses([](auto& c) { c.copy_method = static_cast<CopyMethod>(4); }));
}

TEST(RegionLayoutTest, OperandsHaveSlotsOfTheirOwn) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    if (!has_operand_slots(ranks)) continue;
    const size_t all_bytes = static_cast<size_t>(ranks - 1) * operands_bytes();
    for (int owner = 0; owner < ranks; ++owner) {
      std::set<size_t> slots;
      for (int source = 0; source < ranks; ++source)
        for (int block = 0; block < kMaxWindowBlocks && source != owner; ++block)
          for (uint64_t step = 0; step < kOperandRing; ++step)
            slots.insert(operand_offset(owner, source, block, step));
      EXPECT_EQ(slots.size() * kWindowTile, all_bytes);
      EXPECT_EQ(*slots.rbegin() + kWindowTile, all_bytes);
      EXPECT_EQ(operand_offset(owner, (owner + 1) % ranks, 5, 7),
                operand_offset(owner, (owner + 1) % ranks, 5, 7 + kOperandRing));
    }
  }
}

// The blocks of one index of all ranks: of each, those who push and those who reduce do their next
// step when they may, in any order. None finds another step in a slot than the one it waits for,
// and none waits for ever.
class PushingBlocks {
 public:
  PushingBlocks(int ranks, uint64_t steps)
      : ranks_(ranks),
        steps_(steps),
        pushed_(static_cast<size_t>(ranks)),
        reduced_(pushed_.size()) {}

  int thread_groups() const { return 2 * ranks_; }
  bool is_over() const {
    return std::ranges::all_of(reduced_, [&](uint64_t steps) { return steps == steps_; });
  }
  // False if it has to wait, or has done all.
  bool advance(int thread_group) {
    return thread_group < ranks_ ? push(thread_group) : reduce(thread_group - ranks_);
  }

 private:
  bool push(int rank) {
    uint64_t& step = pushed_[static_cast<size_t>(rank)];
    if (step == steps_ || !all_have(reduced_, rank, reduced_before_push(step))) return false;
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank) slots_[{peer, rank, step % kOperandRing}] = step;
    ++step;
    return true;
  }
  bool reduce(int rank) {
    uint64_t& step = reduced_[static_cast<size_t>(rank)];
    if (step == steps_ || !all_have(pushed_, rank, step + 1)) return false;
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != rank) {
        EXPECT_EQ((slots_[{rank, peer, step % kOperandRing}]), step);
      }
    ++step;
    return true;
  }
  bool all_have(const std::vector<uint64_t>& done, int excluded, uint64_t wanted) const {
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != excluded && done[static_cast<size_t>(peer)] < wanted) return false;
    return true;
  }

  const int ranks_;
  const uint64_t steps_;
  std::vector<uint64_t> pushed_, reduced_;  // steps, by rank
  std::map<std::tuple<int, int, uint64_t>, uint64_t> slots_;
};

TEST(RegionLayoutTest, PushedOperandsAreReadBeforeTheirSlotIsWrittenAnew) {
  std::mt19937_64 random(7);
  for (const int ranks : {3, 4})
    for (const uint64_t steps : {1, 2, 3, 4, 9})
      for (int round = 0; round < 200; ++round) {
        PushingBlocks blocks(ranks, steps);
        while (!blocks.is_over()) {
          // One of them goes as far ahead as it can, now and then.
          const int thread_group =
              static_cast<int>(random() % static_cast<uint64_t>(blocks.thread_groups()));
          bool moved = blocks.advance(thread_group);
          while (moved && random() % 2 == 0) moved = blocks.advance(thread_group);
          bool any = moved || blocks.is_over();
          for (int c = 0; c < blocks.thread_groups() && !any; ++c) any = blocks.advance(c);
          ASSERT_TRUE(any) << ranks << " ranks, " << steps << " steps: all wait";
        }
      }
}

TEST(RegionLayoutTest, PlacesAreReadAsTheyWereTold) {
  const TensorLocation location{(uint64_t{0xabcde} << 40) + (uint64_t{0x12345} << 20) + 0xfedcb,
                                (uint64_t{3} << 20) + 7, 5};
  const uint64_t launch = (uint64_t{1} << kLL128LaunchBits) - 2, fingerprint = 0x123456789abc;
  uint64_t words[kLocationWords];
  for (int i = 0; i < kLocationWords; ++i) {
    words[i] = location_word(location, launch, fingerprint, i);
    EXPECT_TRUE(is_of_launch(words[i], launch));
    EXPECT_FALSE(is_of_launch(words[i], launch + 2));
  }
  EXPECT_EQ(offset_in(words), location.offset);
  EXPECT_TRUE(is_of_call(words, launch, fingerprint));
  for (int bit = 0; bit < kFingerprintBits; ++bit)
    EXPECT_FALSE(is_of_call(words, launch, fingerprint ^ uint64_t{1} << bit)) << bit;
  const TensorLocation elsewhere{location.offset ^ uint64_t{1} << 41, location.bytes,
                                 location.window_id};
  for (const bool is_same : {false, true}) {
    EXPECT_TRUE(matches_location(words, location, is_same));
    EXPECT_EQ(matches_location(words, elsewhere, is_same), !is_same) << "offsets may differ";
    EXPECT_FALSE(matches_location(words, {location.offset, location.bytes + 1, location.window_id},
                                  is_same));
    EXPECT_FALSE(matches_location(words, {location.offset, location.bytes + (uint64_t{1} << 20), 5},
                                  is_same));
    EXPECT_FALSE(matches_location(words, {location.offset, location.bytes, 6}, is_same));
  }
}

TEST(RegionLayoutTest, WordsOfANewWorkspaceAreOfNoLaunch) {
  EXPECT_FALSE(is_of_launch(0, 1));
  EXPECT_FALSE(has_reached(0, tag_of(1, 1)));
}

TEST(RegionLayoutTest, EndsLeaveAlignedVectors) {
  for (uint64_t address = 0; address < 32; ++address)
    for (size_t bytes = 0; bytes < 80; ++bytes) {
      const UnalignedEnds ends = ends_of(address, bytes);
      EXPECT_EQ(ends.head + ends.middle + ends.tail, bytes);
      EXPECT_EQ(ends.middle % 16, 0u);
      EXPECT_LT(ends.head, 16u);
      EXPECT_LT(ends.tail, 16u);
      EXPECT_TRUE(ends.middle == 0 || (address + ends.head) % 16 == 0);
    }
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
