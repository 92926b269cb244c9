#include "transport/nvl/symmetric_memory.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <vector>

#include "base/no_descriptors.hpp"
#include "gpu/cpu_driver.hpp"
#include "transport/nvl/group.hpp"
#include "transport/nvl/peer_descriptor.hpp"

namespace torch::comms::transport::nvl::test {
namespace {

constexpr size_t kBytes = 100000;

MemoryRequest wanted() { return {kBytes, "a test", ""}; }

uint32_t* words_of(const SymmetricMemory& memory, int rank) {
  return static_cast<uint32_t*>(memory.at(rank));
}

// Each rank writes its number into every rank's memory, and finds those of all in its own.
void write_to_all(int rank, int size, const SymmetricMemory& memory,
                  const AllGatherStrings& exchange) {
  require(memory.size_bytes() >= kBytes, "size");
  for (size_t i = 0; i < kBytes / sizeof(uint32_t); ++i)
    require(words_of(memory, rank)[i] == 0, "zeroed");
  exchange("");
  for (int peer = 0; peer < size; ++peer) words_of(memory, peer)[rank] = 100 + rank;
  exchange("");
  for (int peer = 0; peer < size; ++peer)
    require(words_of(memory, rank)[peer] == 100u + peer, "written by all");
}

TEST(SymmetricMemory, IsMappedByAllProcessesOfAGroup) {
  for (const int size : {2, 4})
    EXPECT_EQ(on_processes(size,
                           [&](int rank, const AllGatherStrings& exchange) {
                             const auto made =
                                 SymmetricMemory::make(seat(rank, size), wanted(), exchange);
                             require(made.memory != nullptr, made.error.c_str());
                             write_to_all(rank, size, *made.memory, exchange);
                           }),
              0);
}

TEST(SymmetricMemory, IsMappedByAllThreadsOfAGroup) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    const auto made = SymmetricMemory::make(seat(rank, 3), wanted(), exchange);
    ASSERT_TRUE(made.memory) << made.error;
    write_to_all(rank, 3, *made.memory, exchange);
  });
}

TEST(SymmetricMemory, OutlivesTheRankThatHasItInThoseThatMapIt) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    auto made = SymmetricMemory::make(seat(rank, 2), wanted(), exchange);
    ASSERT_TRUE(made.memory) << made.error;
    words_of(*made.memory, rank)[7] = 7;
    exchange("");
    if (rank == 0) made.memory.reset();
    exchange("");
    if (rank == 1) {
      EXPECT_EQ(words_of(*made.memory, 0)[7], 7u);
    }
  });
}

// A part of it, to which the rest is added later.
constexpr size_t kFirstBytes = 8192;

MemoryRequest part_wanted() {
  auto part = wanted();
  part.initial_bytes = kFirstBytes;
  return part;
}

void check_extension(int rank, int size, const MemoryRequest& its,
                     const AllGatherStrings& exchange) {
  const auto made = SymmetricMemory::make(seat(rank, size), its, exchange);
  require(made.memory != nullptr, made.error.c_str());
  require(!made.memory->is_complete() && made.memory->size_bytes() == kFirstBytes, "a part");
  for (int peer = 0; peer < size; ++peer) words_of(*made.memory, peer)[rank] = 7;
  std::vector<void*> before;
  for (int peer = 0; peer < size; ++peer) before.push_back(made.memory->at(peer));
  require(made.memory->allocate_rest(seat(rank, size), 0x55, exchange).empty(),
          "the rest has come");
  require(made.memory->is_complete(), "all of it");
  for (int peer = 0; peer < size; ++peer) {
    require(made.memory->at(peer) == before[static_cast<size_t>(peer)], "it stays where it is");
    require(words_of(*made.memory, rank)[peer] == 7, "what was there is there");
  }
  constexpr size_t kFirst = kFirstBytes / sizeof(uint32_t), kLast = kBytes / sizeof(uint32_t) - 1;
  for (size_t i = kFirst; i <= kLast; ++i)
    require(words_of(*made.memory, rank)[i] == 0x55555555, "filled");
  exchange("");
  for (int peer = 0; peer < size; ++peer)
    words_of(*made.memory, peer)[kLast - static_cast<size_t>(rank)] = 8;
  exchange("");
  for (int peer = 0; peer < size; ++peer)
    require(words_of(*made.memory, rank)[kLast - static_cast<size_t>(peer)] == 8, "written by all");
  require(made.memory->allocate_rest(seat(rank, size), 0, exchange).empty(),
          "nothing is left to do");
}

TEST(SymmetricMemory, GrowsAtItsPlace) {
  EXPECT_EQ(on_processes(3,
                         [&](int rank, const AllGatherStrings& exchange) {
                           check_extension(rank, 3, part_wanted(), exchange);
                         }),
            0);
}

TEST(SymmetricMemory, IsAPartOnAllRanksWhereOneWantsNoMore) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    check_extension(rank, 3, rank == 1 ? part_wanted() : wanted(), exchange);
  });
}

TEST(SymmetricMemory, IsWholeAtOnceWhereNoPageEndsBehindThePart) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    auto its = part_wanted();
    its.initial_bytes += 8;
    const auto made = SymmetricMemory::make(seat(rank, 2), its, exchange);
    ASSERT_TRUE(made.memory) << made.error;
    EXPECT_TRUE(made.memory->is_complete());
  });
}

TEST(SymmetricMemory, StaysAsItIsWhereOneRankCannotGrow) {
  // Of the second that it is asked for there is no memory.
  static std::atomic<int> made_so_far;
  made_so_far = 0;
  auto table = gpu::cpu_driver_table();
  table.MemCreate = [](gpu::AllocationHandle* handle, size_t size_bytes,
                       const gpu::MemoryProperties* wanted, unsigned long long flags) {
    return made_so_far++ == 1
               ? 2
               : gpu::cpu_driver_table().MemCreate(handle, size_bytes, wanted, flags);
  };
  const auto full = std::make_shared<const gpu::Driver>("full", table);
  on_threads(2, [&](int rank, const AllGatherStrings& exchange) {
    const auto its = rank == 1 ? seat(rank, 2, full) : seat(rank, 2);
    const auto made = SymmetricMemory::make(its, part_wanted(), exchange);
    ASSERT_TRUE(made.memory) << made.error;
    EXPECT_EQ(made.memory->allocate_rest(its, 0, exchange),
              "rank 1: full driver, MemCreate: out of memory (2)");
    EXPECT_FALSE(made.memory->is_complete());
    words_of(*made.memory, 1 - rank)[rank] = 9;
    exchange("");
    EXPECT_EQ(words_of(*made.memory, rank)[1 - rank], 9u);
    EXPECT_EQ(made.memory->allocate_rest(its, 0, exchange), "");
    EXPECT_TRUE(made.memory->is_complete());
    words_of(*made.memory, 1 - rank)[kBytes / sizeof(uint32_t) - 1] = 1;
  });
}

// All ranks give the same reason, and have nothing.
void expect_why(int size, const std::string& why,
                const std::function<std::pair<RankContext, MemoryRequest>(int rank)>& of) {
  on_threads(size, [&](int rank, const AllGatherStrings& exchange) {
    const auto [seat, wanted] = of(rank);
    const auto made = SymmetricMemory::make(seat, wanted, exchange);
    EXPECT_FALSE(made.memory);
    EXPECT_NE(made.error.find(why), std::string::npos) << made.error;
  });
}

TEST(SymmetricMemory, IsNobodysWhereOneRankWantsNone) {
  expect_why(3, "rank 1: no library", [](int rank) {
    auto what = wanted();
    if (rank == 1) what.unavailable_reason = "no library";
    return std::pair{seat(rank, 3, rank == 1 ? nullptr : gpu::Driver::of(gpu::Runtime::cpu())),
                     what};
  });
}

TEST(SymmetricMemory, IsNobodysWhereRanksWantDifferentThings) {
  expect_why(2, "ranks 0 and 1 differ: a test with 100000 bytes, and a test with 100001",
             [](int rank) {
               auto what = wanted();
               what.size_bytes += static_cast<size_t>(rank);
               return std::pair{seat(rank, 2), what};
             });
}

TEST(SymmetricMemory, IsNobodysWhereADeviceCannotShare) {
  auto table = gpu::cpu_driver_table();
  table.DeviceGetAttribute = [](int* value, int attribute, int) {
    *value = attribute == gpu::kHandleTypePosixFdSupported ? 0 : 1;
    return 0;
  };
  const auto odd = std::make_shared<const gpu::Driver>("odd", table);
  expect_why(2, "rank 1: the device has no memory behind file descriptors", [&](int rank) {
    return std::pair{rank == 1 ? seat(rank, 2, odd) : seat(rank, 2), wanted()};
  });
}

TEST(SymmetricMemory, IsNobodysWhereDevicesDoNotReachEachOther) {
  // Two devices; this process is on 0, and the peer's is 1.
  auto table = gpu::cpu_driver_table();
  table.DeviceGetCount = [](int* count) {
    *count = 2;
    return 0;
  };
  table.DeviceGetUuid_v2 = [](gpu::DriverUuid* uuid, int device) {
    *uuid = {};
    uuid->bytes[0] = static_cast<unsigned char>(device + 1);
    return 0;
  };
  table.DeviceGetAttribute = [](int* value, int, int) {
    *value = 1;
    return 0;
  };
  table.DeviceCanAccessPeer = [](int* can, int, int) {
    *can = 0;
    return 0;
  };
  const auto apart = std::make_shared<const gpu::Driver>("two", table);
  expect_why(2, "does not reach the memory of device", [&](int rank) {
    auto its = seat(rank, 2, apart);
    its.device = rank;
    return std::pair{its, wanted()};
  });
}

// Of a process that sees one of two devices alone, as number 0.
template <unsigned char kNumber>
RankContext seat_of_one(int rank, gpu::Driver::NativeAtomicsQuery* joined) {
  auto table = gpu::cpu_driver_table();
  table.DeviceGetUuid_v2 = [](gpu::DriverUuid* uuid, int) {
    *uuid = {{kNumber}};
    return 0;
  };
  return seat(rank, 2, std::make_shared<const gpu::Driver>("one", table, joined));
}

RankContext seat_of_one_of_two(int rank, gpu::Driver::NativeAtomicsQuery* joined) {
  return rank == 0 ? seat_of_one<1>(rank, joined) : seat_of_one<2>(rank, joined);
}

TEST(SymmetricMemory, IsNobodysWhereDevicesThatAProcessDoesNotSeeAreNotJoined) {
  expect_why(2, "device 0 is not joined by NVLink to the device of rank 1", [](int rank) {
    return std::pair{
        seat_of_one_of_two(rank, [](const auto&, const auto&) { return std::optional(false); }),
        wanted()};
  });
}

TEST(SymmetricMemory, IsNobodysWhereNobodyKnowsWhetherDevicesAreJoined) {
  expect_why(2, "whether NVLink joins device 0 to the device of rank 1", [](int rank) {
    return std::pair{
        seat_of_one_of_two(rank, [](const auto&, const auto&) { return std::optional<bool>(); }),
        wanted()};
  });
}

TEST(SymmetricMemory, IsMappedWhereDevicesThatAProcessDoesNotSeeAreJoined) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const auto its =
        seat_of_one_of_two(rank, [](const gpu::DriverUuid& one, const gpu::DriverUuid& other) {
          return std::optional(one.bytes[0] + other.bytes[0] == 3);
        });
    const auto made = SymmetricMemory::make(its, wanted(), exchange);
    EXPECT_TRUE(made.memory) << made.error;
  });
}

TEST(SymmetricMemory, IsNobodysWhereOneRankHasNoMemoryLeft) {
  auto table = gpu::cpu_driver_table();
  table.MemCreate = [](gpu::AllocationHandle*, size_t, const gpu::MemoryProperties*,
                       unsigned long long) { return 2; };
  const auto full = std::make_shared<const gpu::Driver>("full", table);
  expect_why(3, "rank 2: full driver, MemCreate: out of memory (2)", [&](int rank) {
    return std::pair{rank == 2 ? seat(rank, 3, full) : seat(rank, 3), wanted()};
  });
}

TEST(SymmetricMemory, IsNobodysWhereOneRankCannotMapAnothers) {
  auto table = gpu::cpu_driver_table();
  table.MemImportFromShareableHandle = [](gpu::AllocationHandle*, void*, int) { return 1; };
  const auto blind = std::make_shared<const gpu::Driver>("blind", table);
  expect_why(2, "rank 0: blind driver, MemImportFromShareableHandle: invalid argument (1)",
             [&](int rank) {
               return std::pair{rank == 0 ? seat(rank, 2, blind) : seat(rank, 2), wanted()};
             });
}

// From when all have sent theirs on: none for the other one's socket, or none for its memory.
TEST(SymmetricMemory, IsNobodysWhereOneRankHasNoDescriptorForAnothers) {
  for (const int left : {0, 1})
    EXPECT_EQ(on_processes(2,
                           [&](int rank, const AllGatherStrings& exchange) {
                             std::optional<base::NoDescriptors> none;
                             const AllGatherStrings scarce =
                                 [&, round = 0](const std::string& words) mutable {
                                   none.reset();
                                   const auto all = exchange(words);
                                   if (rank == 1 && ++round == 2) {
                                     const base::FileDescriptor last(left > 0 ? ::dup(0) : -1);
                                     none.emplace();
                                   }
                                   return all;
                                 };
                             const auto made =
                                 SymmetricMemory::make(seat(rank, 2), wanted(), scarce);
                             require(made.memory == nullptr, "there is memory");
                             require(made.error.find("rank 1: cannot receive the memory handle") !=
                                             std::string::npos &&
                                         made.error.find("no descriptor left") != std::string::npos,
                                     made.error.c_str());
                           }),
              0);
}

TEST(Card, OfAnotherHostIsAnObjection) {
  PeerDescriptor here, there;
  here.host = FixedString<128>("one");
  there.host = FixedString<128>("two");
  EXPECT_EQ(find_incompatibility({here, here}), "");
  EXPECT_EQ(find_incompatibility({here, here, there}),
            "ranks 0 and 2 are on different hosts, or in containers that do not share a network "
            "namespace");
}

TEST(Card, GoesThroughWordsAndWordsThatAreNoneSaySo) {
  PeerDescriptor card;
  card.size_bytes = 5;
  card.purpose = FixedString<64>("a purpose");
  EXPECT_EQ(parse_descriptor(serialize_descriptor(card)).size_bytes, 5u);
  EXPECT_EQ(parse_descriptor(serialize_descriptor(card)).purpose.text(), "a purpose");
  for (const auto& words : {std::string(), std::string(kMaxTextBytes, 'x')})
    EXPECT_NE(parse_descriptor(words).unavailable_reason.text().find("version"), std::string::npos);
}

}  // namespace
}  // namespace torch::comms::transport::nvl::test
