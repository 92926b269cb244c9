#include "transport/shm/shared_arena.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "transport/processes.hpp"
#include "transport/shm/cma.hpp"
#include "transport/shm/shm_transport.hpp"

// Memory of a process that its peers map as a whole. A process has it for good, so each test does
// in a child what opens it.
namespace torch::comms::transport::test {
namespace {

using shm::PageAllocator;
using shm::SharedArena;

constexpr uint64_t kPage = PageAllocator::kPageBytes;

// Throws in the child what is wrong there.
void expect_in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

void require(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

TEST(PageBlocks, AreApartAndFreeOnesAreUsedAgain) {
  constexpr uint64_t kCapacity = 1000 * kPage;
  PageAllocator blocks(kCapacity + 1);
  std::map<uint64_t, uint64_t> used;  // bytes by beginning
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 && !used.empty()) {
      auto one = used.begin();
      std::advance(one, static_cast<int64_t>(random() % used.size()));
      blocks.release(one->first);
      used.erase(one);
      continue;
    }
    const uint64_t bytes = random() % (40 * kPage);
    const auto begin = blocks.allocate(bytes);
    if (!begin) continue;
    ASSERT_EQ(*begin % kPage, 0u);
    const auto size = blocks.size_of(*begin);
    ASSERT_GE(size, std::max<uint64_t>(bytes, 1));
    ASSERT_LE(*begin + size, kCapacity);
    const auto after = used.upper_bound(*begin);
    ASSERT_TRUE(after == used.end() || *begin + size <= after->first);
    ASSERT_TRUE(after == used.begin() ||
                std::prev(after)->first + std::prev(after)->second <= *begin);
    used.emplace(*begin, size);
  }
  uint64_t in_use = 0;
  for (const auto& [begin, bytes] : used) in_use += bytes;
  EXPECT_EQ(blocks.in_use(), in_use);
  for (const auto& [begin, bytes] : used) blocks.release(begin);
  int free = 0;
  blocks.for_each_free([&](uint64_t begin, uint64_t bytes) {
    ++free;
    EXPECT_EQ(begin, 0u);
    EXPECT_EQ(bytes, blocks.top());
  });
  EXPECT_EQ(free, 1);  // all neighbours are one
  EXPECT_EQ(blocks.allocate(blocks.top()), 0u);
}

TEST(PageBlocks, WithoutRoomThereIsNone) {
  PageAllocator blocks(10 * kPage);
  EXPECT_EQ(blocks.allocate(6 * kPage), 0u);
  EXPECT_EQ(blocks.allocate(5 * kPage), std::nullopt);
  EXPECT_EQ(blocks.allocate(uint64_t{1} << 60), std::nullopt);
  EXPECT_EQ(blocks.allocate(4 * kPage), 6 * kPage);
  EXPECT_EQ(blocks.allocate(0), std::nullopt);
  blocks.release(0);
  EXPECT_EQ(blocks.allocate(0), 0u);
}

TEST(PageBlocks, AFreeOneAtTheEndGoesOnInWhatWasNeverInUse) {
  PageAllocator blocks(10 * kPage);
  EXPECT_EQ(blocks.allocate(4 * kPage), 0u);
  EXPECT_EQ(blocks.allocate(4 * kPage), 4 * kPage);
  blocks.release(4 * kPage);
  EXPECT_EQ(blocks.allocate(6 * kPage), 4 * kPage);
  EXPECT_EQ(blocks.top(), 10 * kPage);
}

TEST(Arena, GivesBackToTheSystemWhatIsFreeAndTooMuch) {
  expect_in_child([] {
    require(SharedArena::find() == nullptr, "there is one before open()");
    auto& arena = SharedArena::open();
    require(SharedArena::find() == &arena, "it is not found");
    constexpr size_t kSize = 140u << 20;
    const auto on_system = [&] {
      struct stat found{};
      ::fstat(arena.file_location().file.get(), &found);
      return static_cast<uint64_t>(found.st_blocks) * 512;
    };
    std::vector<void*> both;
    for (int i = 0; i < 2; ++i) {
      both.push_back(arena.allocate(kSize));
      require(both.back() != nullptr && arena.contains(both.back()), "there is no memory");
      std::memset(both.back(), 1, kSize);
    }
    require(on_system() >= 2 * kSize, "it is not in the file");
    arena.release(both[0]);
    require(on_system() >= 2 * kSize, "what is soon used again was given back");
    require(arena.allocate(kSize) == both[0], "a free block is not used again");
    arena.release(both[0]);
    arena.release(both[1]);
    require(on_system() < kSize, "nothing was given back");
    require(arena.in_use() == 0, "something is still in use");
    require(arena.allocate(size_t{1} << 60) == nullptr, "there cannot be so much");
  });
}

TEST(Arena, IsAForkedChildsOwn) {
  expect_in_child([] {
    auto& arena = SharedArena::open();
    auto* const at = static_cast<char*>(arena.allocate(2 * kPage));
    at[0] = at[kPage] = 'p';
    expect_in_child([&] {
      require(at[0] == 'p', "the child does not find what was there");
      at[0] = 'c';
      require(at[0] == 'c', "the child cannot write");
      expect_in_child([&] {
        require(at[0] == 'c' && at[kPage] == 'p', "the child's child does not find what was there");
        at[0] = 'g';
      });
      require(at[0] == 'c', "its child's write is seen");
      require(SharedArena::find() == nullptr && arena.allocate(1) == nullptr, "the child has some");
      arena.release(at);
    });
    require(at[0] == 'p', "the child's write is seen");
    require(arena.in_use() == 2 * kPage, "the child has given it back");
  });
}

// Where the memory is mapped, it is seen in larger parts than the link's chunks.
struct Watcher final : ReceiveSink {
  std::vector<std::byte> bytes;
  size_t largest = 0;
  void consume(uint64_t offset, ConstBytes chunk) noexcept override {
    std::memcpy(bytes.data() + offset, chunk.data(), chunk.size());
    largest = std::max(largest, chunk.size());
  }
};

// `shares`: which ranks send out of an arena.
void exchange(Rank& self, const std::function<bool(int rank)>& shares) {
  constexpr size_t kSize = 3'000'001;
  auto* const arena = SharedArena::find();
  const bool from_arena = shares(self.rank);
  for (const int peer : self.peers())
    for (const bool consumed : {false, true}) {
      const auto sent = pattern(self.rank, peer, 1, kSize);
      std::vector<std::byte> own(from_arena ? 0 : kSize), into(kSize);
      Bytes from(own);
      if (from_arena) from = {static_cast<std::byte*>(arena->allocate(kSize)), kSize};
      std::ranges::copy(sent, from.begin());
      Request out, back;
      Watcher watcher;
      watcher.bytes.resize(kSize);
      if (consumed)
        self.link.receive(back, peer, 1, kSize, watcher);
      else
        self.link.receive(back, peer, 1, into);
      self.link.send(out, peer, 1, from);
      self.wait(out);
      self.wait(back);
      require((consumed ? watcher.bytes : into) == pattern(peer, self.rank, 1, kSize),
              "wrong data");
      if (consumed && shares(peer)) require(watcher.largest >= 1u << 20, "it was not mapped");
      if (consumed && !shares(peer)) require(watcher.largest < 1u << 20, "what was mapped?");
      if (from_arena) arena->release(from.data());
    }
  self.barrier();
}

TEST(Arena, MessagesOutOfItAreReadWhereTheyLie) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  const Link link{"shm", 3, [](const TransportOptions& options) {
                    SharedArena::open();
                    return shm::make_shm_transport({options});
                  }};
  const auto body = [](Rank& self) {
    require(self.link.capabilities().reason == "peers map the tensors of this process",
            "it is not said");
    for (const bool shares : {true, false}) exchange(self, [shares](int) { return shares; });
  };
  for (const int status : run_processes(link, body)) EXPECT_EQ(status, 0);
}

TEST(Arena, ARankWithoutOneMeetsOneWithIt) {
  if (!shm::is_cma_available()) GTEST_SKIP() << "copies between processes are not allowed here";
  const Link link{"shm", 2, [](const TransportOptions& options) {
                    if (options.rank == 0) SharedArena::open();
                    return shm::make_shm_transport({options});
                  }};
  const auto body = [](Rank& self) { exchange(self, [](int rank) { return rank == 0; }); };
  for (const int status : run_processes(link, body)) EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace torch::comms::transport::test
