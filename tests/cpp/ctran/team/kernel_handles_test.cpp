#include "ctran/team/kernel_handles.hpp"

#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/device/symbols.hpp>

#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "ctran/team/member.hpp"

// Handles for kernels of users over teams of the stand-in: a thread of the host is a thread block
// of one thread.
namespace torch::comms::ctran {
namespace {

namespace device = torchcomms::device;
using device::CmpOp;
using device::CoopScope;
using device::SignalOp;
using kernels::StopReason;
using test::cpu;
using transport::nvl::AllGatherStrings;
using transport::nvl::test::on_processes;
using transport::nvl::test::on_threads;
using transport::nvl::test::require;
using DeviceWindowOfCtran = device::TorchCommDeviceWindow<device::CtranBackend>;

constexpr size_t kPage = 4096;
constexpr uint64_t kSecond_ns = 1'000'000'000;

class KernelHandles : public test::KernelsTest {};

// A rank with a window of two pages and its handle.
struct Member : test::TeamMember {
  Member(int rank, int size, const AllGatherStrings& exchange,
         WindowHandle::WindowHandleCounts counts = {}, uint64_t limit_ns = 60 * kSecond_ns)
      : TeamMember(rank, size, exchange),
        memory(gpu::ShareableMemory::create(gpu::Driver::of(cpu), cpu, 0, 2 * kPage)) {
    auto result = DeviceWindow::create(team, {own(), memory.size_bytes(), 3, "note"}, "", exchange);
    require(result.window != nullptr, result.unavailable_reason.c_str());
    opened = std::move(result.window);
    handle = std::make_unique<WindowHandle>(opened, counts, limit_ns);
  }
  std::byte* own() const { return static_cast<std::byte*>(memory.at()); }
  const DeviceWindowOfCtran& window() const {
    return *static_cast<const DeviceWindowOfCtran*>(handle->address());
  }
  void* address() const { return const_cast<void*>(handle->address()); }
  int next() const { return (rank + 1) % size; }
  int before() const { return (rank + size - 1) % size; }

  const gpu::ShareableMemory memory;
  std::shared_ptr<const DeviceWindow> opened;
  std::unique_ptr<WindowHandle> handle;
};

std::vector<std::byte> sample(size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<size_t>(seed) * 7 + 1);
  return data;
}

// What is computed without memory.

TEST(DeviceCode, ComparesWithTheSignalOnTheLeft) {
  struct Row {
    CmpOp op;
    bool less, equal, more;
  };
  constexpr Row kRows[] = {{CmpOp::EQ, false, true, false}, {CmpOp::NE, true, false, true},
                           {CmpOp::LT, true, false, false}, {CmpOp::LE, true, true, false},
                           {CmpOp::GT, false, false, true}, {CmpOp::GE, false, true, true}};
  for (const auto& row : kRows) {
    EXPECT_EQ(device::compares(row.op, 4, 5), row.less);
    EXPECT_EQ(device::compares(row.op, 5, 5), row.equal);
    EXPECT_EQ(device::compares(row.op, ~uint64_t{0}, 5), row.more) << "values have no sign";
  }
  constexpr CmpOp kByNumber[] = {CmpOp::EQ, CmpOp::GT, CmpOp::LT, CmpOp::GE, CmpOp::LE, CmpOp::NE};
  for (int number = -1; number <= 6; ++number) {
    CmpOp op{};
    ASSERT_EQ(device::comparison_of(number, op), number >= 0 && number < 6);
    if (number < 0 || number >= 6) continue;
    EXPECT_EQ(op, kByNumber[number]);
  }
}

TEST(DeviceCode, BoundsDoNotOverflow) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(device::is_within(0, 10, 10) && device::is_within(10, 0, 10));
  EXPECT_FALSE(device::is_within(1, 10, 10) || device::is_within(11, 0, 10));
  EXPECT_FALSE(device::is_within(kMost, 2, 10) || device::is_within(2, kMost, 10));
  EXPECT_TRUE(device::has_come(1, kMost)) << "counts go round";
  EXPECT_FALSE(device::has_come(kMost, 1));
}

TEST(DeviceCode, PiecesOfAMessageFillItsStretchAndDoNotCrossTheRingsEnd) {
  for (const uint64_t begin : {uint64_t{0}, device::kRingBytes - 16, 5 * device::kRingBytes - 4096})
    for (const uint64_t bytes : {0, 1, 15, 16, 17, 4096, 70'000, 2'000'000})
      for (const uint64_t requested : {0, 1, 1000, 100'000, 10'000'000}) {
        const device::Stretch stretch(begin, bytes);
        const uint64_t most = device::piece_bytes(requested);
        ASSERT_TRUE(most >= 16 && most % 16 == 0 && most <= device::kRingBytes / 2);
        uint64_t at = begin;
        while (at < stretch.end) {
          const uint64_t piece = stretch.piece(at, most);
          ASSERT_TRUE(piece >= 16 && piece % 16 == 0 && piece <= most);
          ASSERT_LE(at % device::kRingBytes + piece, device::kRingBytes);
          at += piece;
        }
        EXPECT_EQ(at, stretch.end);
        EXPECT_GE(stretch.end - begin, bytes + 16);
        EXPECT_LT(stretch.end - begin, bytes + 32);
      }
}

TEST(DeviceCode, CopiesMemoryOfAnyAlignmentAndNothingBeside) {
  const auto source = sample(200, 3);
  for (size_t from = 0; from < 17; ++from)
    for (size_t to = 0; to < 17; ++to)
      for (const size_t bytes : {0, 1, 3, 15, 16, 17, 33, 64, 100}) {
        std::vector<std::byte> target(200, std::byte{0xEE});
        device::copy_bytes(target.data() + to, source.data() + from, bytes,
                           device::Group(CoopScope::BLOCK));
        for (size_t i = 0; i < target.size(); ++i)
          ASSERT_EQ(target[i], i >= to && i < to + bytes ? source[from + i - to] : std::byte{0xEE});
      }
}

// Windows.

void put_around(const Member& member) {
  const auto& window = member.window();
  require(window.rank() == member.rank && window.num_ranks() == member.size, "who and how many");
  require(window.base() == member.own() && window.size() == 2 * kPage, "its own part");
  require(&window.comm() == &window.window().team, "its parts are seen");
  for (int round = 1; round <= 20; ++round) {
    const auto data = sample(1000, member.rank * 100 + round);
    const auto wanted = sample(1000, member.before() * 100 + round);
    require(window.put(static_cast<uint64_t>(round), data.data(), member.next(), data.size(), 5, 7,
                       CoopScope::BLOCK) == device::kDone,
            "it is put");
    const auto count = static_cast<uint64_t>(round);
    require(window.wait_signal(5, CmpOp::GE, count) == device::kDone, "its signal comes");
    require(std::memcmp(member.own() + round, wanted.data(), wanted.size()) == 0, "with the data");
    require(window.wait_signal_from(member.before(), 5, CmpOp::EQ, count) == device::kDone,
            "and is known to be that rank's");
    require(window.wait_counter(7, CmpOp::GE, count) == device::kDone, "it is counted here");
    require(window.read_counter(7) == count && window.read_signal(5) == count, "as often");
    require(window.barrier(0, CoopScope::BLOCK) == device::kDone, "before it is written again");
  }
  require(!member.team->failure(), "nothing stopped");
}

TEST_F(KernelHandles, WhatIsPutIsThereWithItsSignal) {
  on_threads(
      4, [](int rank, const AllGatherStrings& exchange) { put_around(Member(rank, 4, exchange)); });
  EXPECT_EQ(on_processes(3,
                         [](int rank, const AllGatherStrings& exchange) {
                           put_around(Member(rank, 3, exchange));
                         }),
            0);
}

TEST_F(KernelHandles, ARankAloneHasAWindow) {
  put_around(Member(0, 1, [](const std::string& text) { return std::vector{text}; }));
}

TEST_F(KernelHandles, SignalsAreSetAndAddedByEachRankAndReset) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 3, exchange);
    const auto& window = member.window();
    for (int i = 0; i <= rank; ++i)
      EXPECT_EQ(window.signal(0, 9, SignalOp::ADD, 10), device::kDone);
    if (rank == 0) {
      EXPECT_EQ(window.wait_signal(9, CmpOp::EQ, 60), device::kDone);
      for (int peer = 0; peer < 3; ++peer)
        EXPECT_EQ(window.wait_signal_from(peer, 9, CmpOp::EQ, 10u * (peer + 1u)), device::kDone);
    }
    exchange("");
    if (rank == 2) {
      EXPECT_EQ(window.signal(0, 9, SignalOp::SET, 4), device::kDone);
    }
    if (rank == 0) {
      EXPECT_EQ(window.wait_signal(9, CmpOp::LT, 5), device::kDone);
      EXPECT_EQ(window.wait_signal_from(2, 9, CmpOp::LE, 4), device::kDone);
      EXPECT_EQ(window.wait_signal_from(1, 9, CmpOp::NE, 4), device::kDone);
      EXPECT_EQ(window.reset_signal(9), device::kDone);
      EXPECT_EQ(window.read_signal(9), 0u);
      EXPECT_EQ(window.wait_signal_from(1, 9, CmpOp::EQ, 0), device::kDone);
      EXPECT_EQ(window.put(0, member.own(), 0, 8, -1, 3), device::kDone);
      EXPECT_EQ(window.reset_counter(3), device::kDone);
      EXPECT_EQ(window.read_counter(3), 0u);
    }
    exchange("");
  });
}

TEST_F(KernelHandles, WhatDoesNotFitIsRefusedAndWritesNothing) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange, {.signals = 4, .counters = 2, .barriers = 1});
    const auto& window = member.window();
    const auto data = sample(64, rank);
    device::RegisteredBuffer source{};
    source.base_ptr = const_cast<std::byte*>(data.data());
    source.size = data.size();
    const uint64_t end = 2 * kPage, huge = ~uint64_t{0} - 7;
    EXPECT_EQ(window.put(end - 63, source, 0, 1 - rank, 64, 0), device::kOutOfBounds);
    EXPECT_EQ(window.put(huge, source, 0, 1 - rank, 64), device::kOutOfBounds);
    EXPECT_EQ(window.put(0, source, 1, 1 - rank, 64), device::kOutOfBounds);
    EXPECT_EQ(window.put(0, source, huge, 1 - rank, 64), device::kOutOfBounds);
    EXPECT_EQ(window.put(0, source, 0, 2, 64), device::kInvalid);
    EXPECT_EQ(window.put(0, source, 0, -1, 64), device::kInvalid);
    EXPECT_EQ(window.put(0, source, 0, 1 - rank, 64, 4), device::kInvalid);
    EXPECT_EQ(window.put(0, source, 0, 1 - rank, 64, -2), device::kInvalid);
    EXPECT_EQ(window.put(0, source, 0, 1 - rank, 64, -1, 2), device::kInvalid);
    EXPECT_EQ(window.signal(2, 0), device::kInvalid);
    EXPECT_EQ(window.signal(1 - rank, 4), device::kInvalid);
    EXPECT_EQ(window.wait_signal(-1, CmpOp::EQ, 0), device::kInvalid);
    EXPECT_EQ(window.wait_signal_from(2, 0, CmpOp::EQ, 0), device::kInvalid);
    EXPECT_EQ(window.wait_counter(2, CmpOp::EQ, 0), device::kInvalid);
    EXPECT_EQ(window.reset_signal(4), device::kInvalid);
    EXPECT_EQ(window.reset_counter(2), device::kInvalid);
    EXPECT_EQ(window.read_signal(4), 0u);
    EXPECT_EQ(window.barrier(1), device::kInvalid);
    EXPECT_EQ(window.get_nvlink_address(2), nullptr);
    EXPECT_EQ(window.get_multimem_address(), nullptr);
    exchange("");
    for (size_t i = 0; i < end; ++i) ASSERT_EQ(member.own()[i], std::byte{0});
    for (int id = 0; id < 4; ++id) EXPECT_EQ(window.read_signal(id), 0u);
    exchange("");
    EXPECT_EQ(window.put(end - 64, source, 0, 1 - rank, 64, 3, 1), device::kDone);
    EXPECT_EQ(window.wait_signal(3, CmpOp::EQ, 1), device::kDone);
    EXPECT_EQ(std::memcmp(member.own() + end - 64, sample(64, 1 - rank).data(), 64), 0);
    *static_cast<std::byte*>(window.get_nvlink_address(1 - rank)) = std::byte{42};
    EXPECT_EQ(window.barrier(0), device::kDone);
    EXPECT_EQ(member.own()[0], std::byte{42});
    exchange("");
  });
}

TEST_F(KernelHandles, CountsThatCannotBeAreRefused) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    const auto code_of = [&](WindowHandle::WindowHandleCounts counts) {
      try {
        const WindowHandle handle(member.opened, counts, 0);
        return std::optional<Errc>();
      } catch (const CommError& e) {
        return std::optional(e.code());
      }
    };
    EXPECT_EQ(code_of({.signals = -2}), Errc::kInvalidArgument);
    EXPECT_EQ(code_of({.counters = device::kMostCounters + 1}), Errc::kOutOfRange);
    EXPECT_EQ(code_of({.barriers = device::kMostBarriers}), std::nullopt);
    exchange("");
  });
}

TEST_F(KernelHandles, AbortEndsAWaitForOneRankAlone) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange);
    if (rank == 0) {
      std::thread kernel([&] {
        EXPECT_EQ(member.window().wait_signal_from(1, 0, CmpOp::GE, 1), device::kStopped);
        EXPECT_EQ(member.window().barrier(0), device::kStopped) << "and what comes later";
      });
      member.team->abort();
      kernel.join();
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kAborted);
      EXPECT_EQ(member.team->failure()->waited_for, 1);
    }
    exchange("");
    EXPECT_EQ(member.team->failure().has_value(), rank == 0);
  });
}

TEST_F(KernelHandles, AWaitHasTheLimitOfItsHandleAndTellsTheHost) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange, {}, 20'000'000);
    if (rank == 0) {
      EXPECT_EQ(member.window().wait_signal_from(1, 0, CmpOp::GE, 1), device::kTimedOut);
      ASSERT_TRUE(member.team->failure());
      EXPECT_EQ(member.team->failure()->reason, StopReason::kTimeout);
      EXPECT_EQ(member.team->failure()->collective, kernels::Collective::kWaitSignal);
      EXPECT_EQ(member.team->failure()->waited_for, 1);
      EXPECT_EQ(member.window().signal(1, 0), device::kDone) << "what waits for nobody is done";
    }
    exchange("");
  });
}

TEST_F(KernelHandles, KernelsOfTheTeamStopWithThem) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const Member member(rank, 2, exchange, {}, 20'000'000);
    if (rank == 0) {
      EXPECT_EQ(member.window().wait_signal(0, CmpOp::GE, 1), device::kTimedOut);
      kernels::KernelCall call{};
      call.collective = kernels::Collective::kBarrier;
      member.team->launch(call, member.stream);
      cpu.synchronize(member.stream);  // returns: it does not wait for rank 1
    }
    exchange("");
  });
}

TEST_F(KernelHandles, BuffersAreSourcesUntilTheyAreTakenBack) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    auto data = sample(100, rank);
    auto* const buffer = const_cast<void*>(member.handle->add_buffer(data.data(), data.size()));
    const auto& window = member.window();
    ASSERT_EQ(window.buffer(buffer), buffer);
    EXPECT_EQ(window.buffer(data.data()), nullptr);
    EXPECT_EQ(window.buffer(buffer)->backend_window, member.handle->address());
    EXPECT_EQ(window.put(8, *window.buffer(buffer), 4, 1 - rank, 96, 0), device::kDone);
    EXPECT_EQ(window.wait_signal(0, CmpOp::EQ, 1), device::kDone);
    EXPECT_EQ(std::memcmp(member.own() + 8, sample(100, 1 - rank).data() + 4, 96), 0);
    EXPECT_TRUE(member.handle->remove_buffer(buffer));
    EXPECT_FALSE(member.handle->remove_buffer(buffer));
    EXPECT_FALSE(member.handle->remove_buffer(data.data()));
    for (int i = 0; i < device::kMostBuffers; ++i)
      EXPECT_NE(member.handle->add_buffer(data.data(), 1), nullptr);
    EXPECT_THROW(member.handle->add_buffer(data.data(), 1), CommError);
    EXPECT_TRUE(member.handle->remove_buffer(buffer));
    EXPECT_EQ(member.handle->add_buffer(data.data(), 2), buffer) << "its place is used again";
    exchange("");
  });
}

TEST_F(KernelHandles, TheCFunctionsAreTheSame) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    Member member(rank, 2, exchange);
    void* const window = member.address();
    auto data = sample(1000, rank);
    auto* const buffer = const_cast<void*>(member.handle->add_buffer(data.data(), data.size()));
    const int other = 1 - rank;
    EXPECT_EQ(torchcomms_rank(window), rank);
    EXPECT_EQ(torchcomms_num_ranks(window), 2);
    EXPECT_EQ(torchcomms_base(window), member.own());
    EXPECT_EQ(torchcomms_size(window), 2 * kPage);
    EXPECT_NE(torchcomms_get_nvlink_address(window, other), nullptr);
    EXPECT_EQ(torchcomms_get_multimem_address(window, 0), nullptr);
    EXPECT_EQ(torchcomms_put_block(window, 0, buffer, 10, other, 100, 1, 2), 0);
    EXPECT_EQ(torchcomms_put_block_direct(window, 200, data.data(), 10, other, 100), 0);
    EXPECT_EQ(torchcomms_put_warp_chunked_direct(window, 1000, buffer, 0, other, 1000, 96), 0);
    EXPECT_EQ(torchcomms_put_block(window, 0, buffer, 901, other, 100, 1, 2), device::kOutOfBounds);
    EXPECT_EQ(
        torchcomms_put_warp_chunked_direct(window, 2 * kPage - 500, buffer, 0, other, 1000, 96),
        device::kOutOfBounds)
        << "no chunk of it is put";
    EXPECT_EQ(torchcomms_self_copy_block(member.own(), 7000, data.data(), 1, 50), 0);
    EXPECT_EQ(std::memcmp(member.own() + 7000, data.data() + 1, 50), 0);
    EXPECT_EQ(torchcomms_fence(window), 0);
    EXPECT_EQ(torchcomms_flush_block(window), 0);
    EXPECT_EQ(torchcomms_signal_block(window, other, 3, 5), 0);
    EXPECT_EQ(torchcomms_wait_signal(window, 3, 5), 0);
    EXPECT_EQ(torchcomms_wait_signal_from(window, other, 3, 4), 0);
    EXPECT_EQ(torchcomms_wait_signal_from_block(window, other, 1, 1), 0);
    EXPECT_EQ(torchcomms_wait_counter(window, 2, 1), 0);
    EXPECT_EQ(torchcomms_wait_counter_block(window, 2, 1), 0);
    EXPECT_EQ(torchcomms_read_signal(window, 3), 5u);
    EXPECT_EQ(torchcomms_read_counter(window, 2), 1u);
    const auto theirs = sample(1000, other);
    EXPECT_EQ(std::memcmp(member.own(), theirs.data() + 10, 100), 0);
    EXPECT_EQ(std::memcmp(member.own() + 200, theirs.data() + 10, 100), 0);
    EXPECT_EQ(std::memcmp(member.own() + 1000, theirs.data(), 1000), 0);
    EXPECT_EQ(member.own()[2 * kPage - 500], std::byte{0});
    EXPECT_EQ(torchcomms_barrier_block(window, 0), 0);
    EXPECT_EQ(torchcomms_reset_signal(window, 3), 0);
    EXPECT_EQ(torchcomms_reset_counter(window, 2), 0);
    EXPECT_EQ(torchcomms_read_signal(window, 3) + torchcomms_read_counter(window, 2), 0u);
    exchange("");
  });
}

// Transports.

struct TransportMember : test::TeamMember {
  TransportMember(int rank, int size, const AllGatherStrings& exchange,
                  uint64_t limit_ns = 60 * kSecond_ns)
      : TeamMember(rank, size, exchange) {
    auto result = DeviceTransport::create(team, limit_ns, exchange);
    require(result.transport != nullptr, result.unavailable_reason.c_str());
    owner = std::move(result.transport);
  }
  const device::TorchCommDeviceTransport& transport() const {
    return *static_cast<const device::TorchCommDeviceTransport*>(owner->address());
  }
  std::unique_ptr<DeviceTransport> owner;
};

// Messages of many sizes to the next rank, in pieces of sizes of their own, while as many come.
void pass_around(const TransportMember& self) {
  const int next = (self.rank + 1) % self.size, before = (self.rank + self.size - 1) % self.size;
  const auto& transport = self.transport();
  const std::vector<size_t> sizes = {0, 1, 16, 1000, 65'536, 65'537, 600'001, 2'000'000, 3};
  std::thread sender([&] {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto data = sample(sizes[i] + 3, self.rank * 10 + static_cast<int>(i));
      require(transport.send(next, data.data() + 3, sizes[i], i * 5000) == device::kDone, "sent");
    }
  });
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::byte> got(sizes[i] + 1);
    const auto wanted = sample(sizes[i] + 3, before * 10 + static_cast<int>(i));
    require(transport.recv(before, got.data() + 1, sizes[i], i * 70'000) == device::kDone,
            "received");
    require(std::memcmp(got.data() + 1, wanted.data() + 3, sizes[i]) == 0, "as it was sent");
  }
  sender.join();
  require(!self.team->failure(), "nothing stopped");
}

TEST_F(KernelHandles, MessagesOfAnySizeGoThroughRings) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    pass_around(TransportMember(rank, 3, exchange));
  });
  EXPECT_EQ(on_processes(2,
                         [](int rank, const AllGatherStrings& exchange) {
                           pass_around(TransportMember(rank, 2, exchange));
                         }),
            0);
}

TEST_F(KernelHandles, ARankAloneHasATransport) {
  const TransportMember alone(0, 1, [](const std::string& text) { return std::vector{text}; });
  pass_around(alone);
  EXPECT_EQ(alone.transport().num_nvl_peers(), 0);
}

TEST_F(KernelHandles, PairsHaveSignalsAndBarriersOfTheirOwn) {
  on_threads(3, [](int rank, const AllGatherStrings& exchange) {
    const TransportMember self(rank, 3, exchange);
    void* const transport = const_cast<void*>(self.owner->address());
    EXPECT_EQ(torchcomms_transport_my_rank(transport), rank);
    EXPECT_EQ(torchcomms_transport_n_ranks(transport), 3);
    EXPECT_EQ(torchcomms_transport_num_nvl_peers(transport), 2);
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(torchcomms_transport_get_type(transport, peer), peer == rank ? 0 : 1);
    EXPECT_LT(torchcomms_transport_get_type(transport, 3), 0);
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(torchcomms_transport_signal(transport, peer, 63, 0, 10u + rank), 0);
      EXPECT_EQ(torchcomms_transport_signal(transport, peer, 63, 1, 1), 0);
    }
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(torchcomms_transport_wait_signal(transport, peer, 63, 0, 11u + peer), 0);
    EXPECT_EQ(torchcomms_transport_signal(transport, 0, 64, 0, 1), device::kInvalid);
    EXPECT_EQ(torchcomms_transport_signal(transport, 0, 0, 2, 1), device::kInvalid);
    EXPECT_EQ(torchcomms_transport_wait_signal(transport, 0, 0, 6, 1), device::kInvalid);
    EXPECT_EQ(torchcomms_transport_barrier(transport, 0, device::kTransportBarriers),
              device::kInvalid);
    for (int round = 0; round < 50 && rank < 2; ++round)  // the third has no part in it
      EXPECT_EQ(torchcomms_transport_barrier(transport, 1 - rank, 5), 0);
    char byte = 0;
    EXPECT_EQ(torchcomms_transport_send(transport, 3, &byte, 1, 0), device::kInvalid);
    EXPECT_EQ(torchcomms_transport_recv(transport, -1, &byte, 1, 0), device::kInvalid);
    exchange("");
  });
}

TEST_F(KernelHandles, SidesOfAMessageWithOtherSizesBothStop) {
  on_threads(2, [](int rank, const AllGatherStrings& exchange) {
    const TransportMember self(rank, 2, exchange);
    std::vector<std::byte> data(100);
    if (rank == 0) {
      EXPECT_EQ(self.transport().send(1, data.data(), 60), device::kDone);
      EXPECT_EQ(self.transport().recv(1, data.data(), 1), device::kMismatched);
    } else {
      EXPECT_EQ(self.transport().recv(0, data.data(), 100), device::kMismatched);
    }
    ASSERT_TRUE(self.team->failure());
    EXPECT_EQ(self.team->failure()->reason, StopReason::kSizeMismatch);
    EXPECT_EQ(self.team->failure()->waited_for, 1 - rank);
    exchange("");
  });
}

}  // namespace
}  // namespace torch::comms::ctran
