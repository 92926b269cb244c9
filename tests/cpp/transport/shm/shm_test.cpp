#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "transport/conformance_streams.hpp"
#include "transport/conformance_windows.hpp"
#include "transport/protocol/protocol_thresholds.hpp"
#include "transport/shm/shared_file.hpp"
#include "transport/shm/shm_segment.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/waiting/core_balancer.hpp"

namespace torch::comms::transport::test {
namespace {

Link shm(const char* name, const shm::RingShape& ring, bool single_copy) {
  return {name, 3, [=](const TransportOptions& options) {
            shm::ShmOptions all{options};
            all.ring = ring;
            all.single_copy = single_copy;
            return make_shm_transport(all);
          }};
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         testing::Values(shm("as_it_is", {256, 0, 0}, true),
                                         shm("tiny_rings", {8, 4096, 1024}, false),
                                         shm("tiny_rings_single_copy", {8, 4096, 1024}, true)),
                         [](const auto& info) { return info.param.name; });

// Two ranks of this thread: each sees the other where it is itself, and another core that has none.
TEST(ShmTransport, RanksSeeOnWhichCoreTheOthersAre) {
  const auto cores = CpuSet::of_this_thread();
  if (cores.count() < 2) GTEST_SKIP() << "needs two cores";
  const auto link = shm("two", {256, 0, 0}, true);
  const Secret job = random_secret();
  std::array<CoreBalancer, 2> balancers{CoreBalancer(0, cores), CoreBalancer(1, cores)};
  std::array<std::unique_ptr<Transport>, 2> ends;
  for (int rank = 0; rank < 2; ++rank) {
    TransportOptions options;
    options.rank = rank;
    options.size = options.local_ranks = 2;
    options.job = job;
    auto& end = ends[static_cast<size_t>(rank)] = link.make(options);
    end->set_wait_policy({.core_balancer = &balancers[static_cast<size_t>(rank)]});
  }
  for (int rank = 0; rank < 2; ++rank)
    ends[static_cast<size_t>(rank)]->connect(1 - rank,
                                             ends[static_cast<size_t>(1 - rank)]->endpoint());
  const auto deadline = in(kLong);
  while ((ends[0]->state(1) != PeerState::kReady || ends[1]->state(0) != PeerState::kReady) &&
         std::chrono::steady_clock::now() < deadline)
    ends[0]->progress(), ends[1]->progress();
  const auto one_moves = [&] {
    for (int calls = 0; calls < 10'000; ++calls)
      for (auto& balancer : balancers)
        if (balancer.rebalance(std::chrono::steady_clock::now())) return true;
    return false;
  };
  EXPECT_TRUE(one_moves());
  ends[0].reset();
  while (ends[1]->state(0) == PeerState::kReady && std::chrono::steady_clock::now() < deadline)
    ends[1]->progress();
  EXPECT_FALSE(one_moves()) << "the other one is gone";
}

// The sockets are looked at now and then, or when that is asked for.
TEST(ShmTransport, APeersEndIsSeenByTheNextProgressWhereThatIsToLook) {
  auto links = make_links(shm("two", {256, 0, 0}, true));
  auto& survivor = *links[1];
  const auto deadline = in(kLong);
  while ((links[0]->state(1) != PeerState::kReady || survivor.state(0) != PeerState::kReady) &&
         std::chrono::steady_clock::now() < deadline)
    links[0]->progress(), survivor.progress();
  for (int i = 0; i < 3; ++i) survivor.progress();
  links[0].reset();
  survivor.progress();
  EXPECT_EQ(survivor.state(0), PeerState::kReady);
  survivor.poll_all_next();
  survivor.progress();
  EXPECT_EQ(survivor.state(0), PeerState::kFailed);
}

// Eight cells hold eight grants; the others wait in this rank, though no request of it says so.
TEST(ShmTransport, WhatTheRingHasNoRoomForIsUnsent) {
  std::list<MessageBuffer> messages;  // outlives the links, which end its requests
  const auto links = make_links(shm("tiny", {8, 4096, 1024}, false));
  auto& one = *links[0];
  auto& other = *links[1];
  const auto deadline = in(kLong);
  while ((one.state(1) != PeerState::kReady || other.state(0) != PeerState::kReady) &&
         std::chrono::steady_clock::now() < deadline)
    one.progress(), other.progress();
  for (int i = 0; i < 40; ++i) {
    auto& back = messages.emplace_back(100'000);
    one.receive(back.request, 1, 1, back.bytes);
  }
  one.progress();
  EXPECT_TRUE(one.has_unsent());
  while (one.has_unsent() && std::chrono::steady_clock::now() < deadline)
    other.progress(), one.progress();
  EXPECT_FALSE(one.has_unsent());
  EXPECT_FALSE(other.has_unsent());
}

// How many of some messages of so many bytes have left before the peer has a receive for any.
int64_t count_sent_at_once(int local_ranks, size_t bytes) {
  std::list<MessageBuffer> messages;  // outlives the links, which end its requests
  const auto links = make_links(shm("two", {256, 0, 0}, true),
                                [&](auto& options) { options.local_ranks = local_ranks; });
  auto& one = *links[0];
  const auto deadline = in(kLong);
  while (one.state(1) != PeerState::kReady && std::chrono::steady_clock::now() < deadline)
    one.progress(), links[1]->progress();
  for (int i = 0; i < 15; ++i) {  // more than are needed before the seldom way is tried
    auto& sent = messages.emplace_back(bytes);
    one.send(sent.request, 1, 1, sent.bytes);
  }
  return std::ranges::count_if(messages,
                               [](const MessageBuffer& sent) { return sent.request.is_done(); });
}

TEST(ShmTransport, LargerMessagesWaitForTheirReceiveWhereRanksTakeTurns) {
  const auto link = shm("alone", {256, 0, 0}, true).make({});
  if (!link->capabilities().has_single_copy) GTEST_SKIP() << link->capabilities().reason;
  const int oversubscribed = CpuSet::of_this_thread().count() + 1;
  EXPECT_EQ(count_sent_at_once(oversubscribed, kMaxInlineEagerBytesOversubscribed + 1), 0);
  EXPECT_GT(count_sent_at_once(oversubscribed, kMaxInlineEagerBytesOversubscribed), 0);
  EXPECT_GT(count_sent_at_once(1, kMaxInlineEagerBytesOversubscribed + 1), 0);
}

// A copy would be made of it, and another from there. What a peer says of other streams is heard.
TEST(ShmTransport, WhatIsAboutToBeTakenAtOnceStaysWhereItIs) {
  const auto links = make_links(shm("two", {256, 0, 0}, true));
  auto& one = *links[0];
  auto& other = *links[1];
  const auto deadline = in(kLong);
  while ((one.state(1) != PeerState::kReady || other.state(0) != PeerState::kReady) &&
         std::chrono::steady_clock::now() < deadline)
    one.progress(), other.progress();
  const auto sent = pattern(0, 1, 1, 1000);
  for (const uint32_t stream : {3, 4}) ASSERT_TRUE(one.try_send(1, stream, sent, 7));
  for (int i = 0; i < 10; ++i) other.progress_except(3);
  for (const uint32_t stream : {3, 4}) EXPECT_FALSE(other.has_message(0, stream));
  std::vector<std::byte> back(1000);
  EXPECT_TRUE(other.try_receive(0, 3, {.into = back, .bytes = back.size()}, 7));
  EXPECT_TRUE(back == sent);
  other.progress_except(3);
  EXPECT_TRUE(other.has_message(0, 4));
  EXPECT_TRUE(other.try_receive(0, 4, {.into = back, .bytes = back.size()}, 7));
  EXPECT_TRUE(back == sent);
}

TEST(SharedFile, IsFoundBehindMemoryThatOthersCanMapAndNothingElse) {
  auto file = shm::create_memory("test", 100'000);
  const auto mapping = shm::map_memory(file, 100'000);
  const auto place = shm::find_shared_file(mapping.bytes().subspan(5001, 77));
  ASSERT_TRUE(place.file);
  EXPECT_NE(place.file.get(), file.get());
  EXPECT_EQ(place.offset, 5001);
  struct stat found{};
  ASSERT_EQ(::fstat(place.file.get(), &found), 0);
  EXPECT_EQ(place.inode, found.st_ino);

  std::vector<std::byte> own(100'000);
  EXPECT_FALSE(shm::find_shared_file(own).file);
  EXPECT_FALSE(shm::find_shared_file({}).file);
  EXPECT_FALSE(shm::find_shared_file({mapping.bytes().data(), 200'000}).file)
      << "it is not in one file";
  file = {};
  const auto again = shm::find_shared_file(mapping.bytes());
  EXPECT_TRUE(again.file) << "the descriptor of `place` is still open";
}

// Libraries that would run out of descriptors close theirs.
TEST(SharedFile, IsFoundByItsNameWhereNobodyHasItOpen) {
  const std::string name = "/torchcomms-test-" + std::to_string(random_number());
  base::FileDescriptor file(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  ASSERT_TRUE(file);
  ASSERT_EQ(::ftruncate(file.get(), 100'000), 0);
  struct stat created{}, found{};
  ASSERT_EQ(::fstat(file.get(), &created), 0);
  const auto mapping = shm::map_memory(file, 100'000);
  file = {};
  auto place = shm::find_shared_file(mapping.bytes().subspan(5001, 77));
  ASSERT_EQ(::fstat(place.file.get(), &found), 0);
  EXPECT_EQ(found.st_ino, created.st_ino);
  EXPECT_EQ(place.offset, 5001);

  place = {};
  ASSERT_EQ(::shm_unlink(name.c_str()), 0);
  EXPECT_FALSE(shm::find_shared_file(mapping.bytes()).file);
  file = base::FileDescriptor(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  EXPECT_FALSE(shm::find_shared_file(mapping.bytes()).file) << "another file has its name";
  ::shm_unlink(name.c_str());
}

TEST(SharedFile, MemoryInTheMiddleOfItIsMappedByPeers) {
  run({"shm", 2,
       [](const TransportOptions& options) {
         return make_shm_transport(shm::ShmOptions{options});
       }},
      [](Rank& self) {
        constexpr size_t kBegin = 5001, kSize = 20'000;
        const auto file = shm::create_memory("test", 100'000);
        const auto whole = shm::map_memory(file, 100'000);
        const auto memory = self.link.register_memory(whole.bytes().subspan(kBegin, kSize));
        Request out, back;
        const auto mine = serialize(memory->handle());
        std::string theirs(kMemoryHandleBytes, ' ');
        const int peer = 1 - self.rank;
        self.link.receive(back, peer, 9, std::as_writable_bytes(std::span(theirs)));
        self.link.send(out, peer, 9, std::as_bytes(std::span(mine)));
        self.wait(out);
        self.wait(back);
        const auto remote = self.link.import(parse_memory_handle(theirs));
        ASSERT_EQ(remote->mapped().size(), kSize);
        MessageBuffer data(pattern(self.rank, peer, 1, kSize));
        self.link.put(data.request, *remote, 0, data.bytes);
        EXPECT_TRUE(data.request.is_done());
        self.barrier();
        const auto want = pattern(peer, self.rank, 1, kSize);
        EXPECT_TRUE(std::equal(want.begin(), want.end(), whole.bytes().begin() + kBegin));
        EXPECT_EQ(whole.bytes()[kBegin - 1], std::byte{0});
        EXPECT_EQ(whole.bytes()[kBegin + kSize], std::byte{0});
        self.barrier();
      });
}

}  // namespace
}  // namespace torch::comms::transport::test
