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

MemoryRequest test_request() { return {kBytes, "a test", ""}; }

uint32_t* words_of(const SymmetricMemory& memory, int rank) {
  return static_cast<uint32_t*>(memory.at(rank));
}

// Each rank writes its number into every rank's memory, and finds those of all in its own.
void write_to_all(int rank, int size, const SymmetricMemory& memory,
                  const AllGatherStrings& all_gather) {
  require(memory.size_bytes() >= kBytes, "size");
  for (size_t i = 0; i < kBytes / sizeof(uint32_t); ++i)
    require(words_of(memory, rank)[i] == 0, "zeroed");
  all_gather("");
  for (int peer = 0; peer < size; ++peer) words_of(memory, peer)[rank] = 100 + rank;
  all_gather("");
  for (int peer = 0; peer < size; ++peer)
    require(words_of(memory, rank)[peer] == 100u + peer, "written by all");
}

TEST(SymmetricMemory, IsMappedByAllProcessesOfAGroup) {
  for (const int size : {2, 4})
    EXPECT_EQ(on_processes(size,
                           [&](int rank, const AllGatherStrings& all_gather) {
                             const auto result = SymmetricMemory::make(context_of(rank, size),
                                                                       test_request(), all_gather);
                             require(result.memory != nullptr, result.error.c_str());
                             write_to_all(rank, size, *result.memory, all_gather);
                           }),
              0);
}

TEST(SymmetricMemory, IsMappedByAllThreadsOfAGroup) {
  on_threads(3, [](int rank, const AllGatherStrings& all_gather) {
    const auto result = SymmetricMemory::make(context_of(rank, 3), test_request(), all_gather);
    ASSERT_TRUE(result.memory) << result.error;
    write_to_all(rank, 3, *result.memory, all_gather);
  });
}

TEST(SymmetricMemory, OutlivesTheRankThatHasItInThoseThatMapIt) {
  on_threads(2, [](int rank, const AllGatherStrings& all_gather) {
    auto result = SymmetricMemory::make(context_of(rank, 2), test_request(), all_gather);
    ASSERT_TRUE(result.memory) << result.error;
    words_of(*result.memory, rank)[7] = 7;
    all_gather("");
    if (rank == 0) result.memory.reset();
    all_gather("");
    if (rank == 1) {
      EXPECT_EQ(words_of(*result.memory, 0)[7], 7u);
    }
  });
}

// A part of it, to which the rest is added later.
constexpr size_t kFirstBytes = 8192;

MemoryRequest part_request() {
  auto part = test_request();
  part.initial_bytes = kFirstBytes;
  return part;
}

void check_extension(int rank, int size, const MemoryRequest& request,
                     const AllGatherStrings& all_gather) {
  const auto result = SymmetricMemory::make(context_of(rank, size), request, all_gather);
  require(result.memory != nullptr, result.error.c_str());
  require(!result.memory->is_complete() && result.memory->size_bytes() == kFirstBytes, "a part");
  for (int peer = 0; peer < size; ++peer) words_of(*result.memory, peer)[rank] = 7;
  std::vector<void*> before;
  for (int peer = 0; peer < size; ++peer) before.push_back(result.memory->at(peer));
  require(result.memory->allocate_rest(context_of(rank, size), 0x55, all_gather).empty(),
          "the rest has come");
  require(result.memory->is_complete(), "all of it");
  for (int peer = 0; peer < size; ++peer) {
    require(result.memory->at(peer) == before[static_cast<size_t>(peer)], "it stays where it is");
    require(words_of(*result.memory, rank)[peer] == 7, "what was there is there");
  }
  constexpr size_t kFirst = kFirstBytes / sizeof(uint32_t), kLast = kBytes / sizeof(uint32_t) - 1;
  for (size_t i = kFirst; i <= kLast; ++i)
    require(words_of(*result.memory, rank)[i] == 0x55555555, "filled");
  all_gather("");
  for (int peer = 0; peer < size; ++peer)
    words_of(*result.memory, peer)[kLast - static_cast<size_t>(rank)] = 8;
  all_gather("");
  for (int peer = 0; peer < size; ++peer)
    require(words_of(*result.memory, rank)[kLast - static_cast<size_t>(peer)] == 8,
            "written by all");
  require(result.memory->allocate_rest(context_of(rank, size), 0, all_gather).empty(),
          "nothing is left to do");
}

TEST(SymmetricMemory, GrowsAtItsPlace) {
  EXPECT_EQ(on_processes(3,
                         [&](int rank, const AllGatherStrings& all_gather) {
                           check_extension(rank, 3, part_request(), all_gather);
                         }),
            0);
}

TEST(SymmetricMemory, IsAPartOnAllRanksWhereOneWantsNoMore) {
  on_threads(3, [](int rank, const AllGatherStrings& all_gather) {
    check_extension(rank, 3, rank == 1 ? part_request() : test_request(), all_gather);
  });
}

TEST(SymmetricMemory, IsWholeAtOnceWhereNoPageEndsBehindThePart) {
  on_threads(2, [](int rank, const AllGatherStrings& all_gather) {
    auto request = part_request();
    request.initial_bytes += 8;
    const auto result = SymmetricMemory::make(context_of(rank, 2), request, all_gather);
    ASSERT_TRUE(result.memory) << result.error;
    EXPECT_TRUE(result.memory->is_complete());
  });
}

TEST(SymmetricMemory, StaysAsItIsWhereOneRankCannotGrow) {
  // Of the second that it is asked for there is no memory.
  static std::atomic<int> allocations;
  allocations = 0;
  auto table = gpu::cpu_driver_table();
  table.MemCreate = [](gpu::AllocationHandle* handle, size_t size_bytes,
                       const gpu::MemoryProperties* properties, unsigned long long flags) {
    return allocations++ == 1
               ? 2
               : gpu::cpu_driver_table().MemCreate(handle, size_bytes, properties, flags);
  };
  const auto full = std::make_shared<const gpu::Driver>("full", table);
  on_threads(2, [&](int rank, const AllGatherStrings& all_gather) {
    const auto context = rank == 1 ? context_of(rank, 2, full) : context_of(rank, 2);
    const auto result = SymmetricMemory::make(context, part_request(), all_gather);
    ASSERT_TRUE(result.memory) << result.error;
    EXPECT_EQ(result.memory->allocate_rest(context, 0, all_gather),
              "rank 1: full driver, MemCreate: out of memory (2)");
    EXPECT_FALSE(result.memory->is_complete());
    words_of(*result.memory, 1 - rank)[rank] = 9;
    all_gather("");
    EXPECT_EQ(words_of(*result.memory, rank)[1 - rank], 9u);
    EXPECT_EQ(result.memory->allocate_rest(context, 0, all_gather), "");
    EXPECT_TRUE(result.memory->is_complete());
    words_of(*result.memory, 1 - rank)[kBytes / sizeof(uint32_t) - 1] = 1;
  });
}

// All ranks give the same reason, and have nothing.
void expect_why(int size, const std::string& why,
                const std::function<std::pair<RankContext, MemoryRequest>(int rank)>& of) {
  on_threads(size, [&](int rank, const AllGatherStrings& all_gather) {
    const auto [context, request] = of(rank);
    const auto result = SymmetricMemory::make(context, request, all_gather);
    EXPECT_FALSE(result.memory);
    EXPECT_NE(result.error.find(why), std::string::npos) << result.error;
  });
}

TEST(SymmetricMemory, IsNobodysWhereOneRankWantsNone) {
  expect_why(3, "rank 1: no library", [](int rank) {
    auto request = test_request();
    if (rank == 1) request.unavailable_reason = "no library";
    return std::pair{
        context_of(rank, 3, rank == 1 ? nullptr : gpu::Driver::of(gpu::Runtime::cpu())), request};
  });
}

TEST(SymmetricMemory, IsNobodysWhereRanksWantDifferentThings) {
  expect_why(2, "ranks 0 and 1 differ: a test with 100000 bytes, and a test with 100001",
             [](int rank) {
               auto request = test_request();
               request.size_bytes += static_cast<size_t>(rank);
               return std::pair{context_of(rank, 2), request};
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
    return std::pair{rank == 1 ? context_of(rank, 2, odd) : context_of(rank, 2), test_request()};
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
    auto context = context_of(rank, 2, apart);
    context.device = rank;
    return std::pair{context, test_request()};
  });
}

// Of a process that sees one of two devices alone, as number 0.
template <unsigned char kNumber>
RankContext context_with_uuid(int rank, gpu::Driver::NativeAtomicsQuery* joined) {
  auto table = gpu::cpu_driver_table();
  table.DeviceGetUuid_v2 = [](gpu::DriverUuid* uuid, int) {
    *uuid = {{kNumber}};
    return 0;
  };
  return context_of(rank, 2, std::make_shared<const gpu::Driver>("one", table, joined));
}

RankContext context_with_own_uuid(int rank, gpu::Driver::NativeAtomicsQuery* joined) {
  return rank == 0 ? context_with_uuid<1>(rank, joined) : context_with_uuid<2>(rank, joined);
}

TEST(SymmetricMemory, IsNobodysWhereDevicesThatAProcessDoesNotSeeAreNotJoined) {
  expect_why(2, "device 0 is not joined by NVLink to the device of rank 1", [](int rank) {
    return std::pair{
        context_with_own_uuid(rank, [](const auto&, const auto&) { return std::optional(false); }),
        test_request()};
  });
}

TEST(SymmetricMemory, IsNobodysWhereNobodyKnowsWhetherDevicesAreJoined) {
  expect_why(2, "whether NVLink joins device 0 to the device of rank 1", [](int rank) {
    return std::pair{
        context_with_own_uuid(rank, [](const auto&, const auto&) { return std::optional<bool>(); }),
        test_request()};
  });
}

TEST(SymmetricMemory, IsMappedWhereDevicesThatAProcessDoesNotSeeAreJoined) {
  on_threads(2, [](int rank, const AllGatherStrings& all_gather) {
    const auto context =
        context_with_own_uuid(rank, [](const gpu::DriverUuid& one, const gpu::DriverUuid& other) {
          return std::optional(one.bytes[0] + other.bytes[0] == 3);
        });
    const auto result = SymmetricMemory::make(context, test_request(), all_gather);
    EXPECT_TRUE(result.memory) << result.error;
  });
}

TEST(SymmetricMemory, IsNobodysWhereOneRankHasNoMemoryLeft) {
  auto table = gpu::cpu_driver_table();
  table.MemCreate = [](gpu::AllocationHandle*, size_t, const gpu::MemoryProperties*,
                       unsigned long long) { return 2; };
  const auto full = std::make_shared<const gpu::Driver>("full", table);
  expect_why(3, "rank 2: full driver, MemCreate: out of memory (2)", [&](int rank) {
    return std::pair{rank == 2 ? context_of(rank, 3, full) : context_of(rank, 3), test_request()};
  });
}

TEST(SymmetricMemory, IsNobodysWhereOneRankCannotMapAnothers) {
  auto table = gpu::cpu_driver_table();
  table.MemImportFromShareableHandle = [](gpu::AllocationHandle*, void*, int) { return 1; };
  const auto blind = std::make_shared<const gpu::Driver>("blind", table);
  expect_why(2, "rank 0: blind driver, MemImportFromShareableHandle: invalid argument (1)",
             [&](int rank) {
               return std::pair{rank == 0 ? context_of(rank, 2, blind) : context_of(rank, 2),
                                test_request()};
             });
}

// From when all have sent theirs on: none for the other one's socket, or none for its memory.
TEST(SymmetricMemory, IsNobodysWhereOneRankHasNoDescriptorForAnothers) {
  for (const int left : {0, 1})
    EXPECT_EQ(on_processes(2,
                           [&](int rank, const AllGatherStrings& all_gather) {
                             std::optional<base::NoDescriptors> none;
                             const AllGatherStrings limited_all_gather =
                                 [&, round = 0](const std::string& text) mutable {
                                   none.reset();
                                   const auto all = all_gather(text);
                                   if (rank == 1 && ++round == 2) {
                                     const base::FileDescriptor last(left > 0 ? ::dup(0) : -1);
                                     none.emplace();
                                   }
                                   return all;
                                 };
                             const auto result = SymmetricMemory::make(
                                 context_of(rank, 2), test_request(), limited_all_gather);
                             require(result.memory == nullptr, "there is memory");
                             require(
                                 result.error.find("rank 1: cannot receive the memory handle") !=
                                         std::string::npos &&
                                     result.error.find("no descriptor left") != std::string::npos,
                                 result.error.c_str());
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
  PeerDescriptor descriptor;
  descriptor.size_bytes = 5;
  descriptor.purpose = FixedString<64>("a purpose");
  EXPECT_EQ(parse_descriptor(serialize_descriptor(descriptor)).size_bytes, 5u);
  EXPECT_EQ(parse_descriptor(serialize_descriptor(descriptor)).purpose.text(), "a purpose");
  for (const auto& text : {std::string(), std::string(kMaxTextBytes, 'x')})
    EXPECT_NE(parse_descriptor(text).unavailable_reason.text().find("version"), std::string::npos);
}

}  // namespace
}  // namespace torch::comms::transport::nvl::test
