#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/no_descriptors.hpp"
#include "transport/connect/connect_retry.hpp"
#include "transport/connect/unix_socket.hpp"
#include "transport/processes.hpp"
#include "transport/shm/shm_transport.hpp"

namespace torch::comms::transport::test {
namespace {

using Links = std::vector<std::unique_ptr<Transport>>;

std::unique_ptr<Transport> make(int rank, int size, const Secret& job) {
  shm::ShmOptions options;
  options.rank = rank;
  options.size = options.local_ranks = size;
  options.job = job;
  options.ring = {8, 4096, 1024};
  return shm::make_shm_transport(options);
}

// All links are progressed until `condition()`, which is returned.
template <class Condition>
bool becomes(std::initializer_list<Transport*> links, const Condition& condition) {
  const auto deadline = in(kLong);
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    for (auto* link : links) link->progress();
  return condition();
}

// More than may call without saying who they are.
TEST(ShmConnecting, AsManyRanksAsThereAreMayCallBeforeOneLooks) {
  constexpr int kRanks = 71;
  constexpr int kLast = kRanks - 1;
  const Secret job = random_secret();
  const std::byte sent{7};
  std::vector<std::byte> received(kLast);
  std::vector<Request> out(kLast), back(kLast);
  Links links;
  for (int rank = 0; rank < kRanks; ++rank) links.push_back(make(rank, kRanks, job));
  auto& last = *links.back();
  for (int rank = 0; rank < kLast; ++rank) {
    const auto at = static_cast<size_t>(rank);
    links[at]->connect(kLast, last.endpoint());
    links[at]->send(out[at], kLast, 1, ConstBytes(&sent, 1));
  }
  for (int rank = 0; rank < kLast; ++rank) {
    const auto at = static_cast<size_t>(rank);
    last.connect(rank, links[at]->endpoint());
    last.receive(back[at], rank, 1, Bytes(&received[at], 1));
  }
  const auto done = [](const Request& request) { return request.is_done(); };
  const auto deadline = in(kLong);
  while (!std::ranges::all_of(back, done) && std::chrono::steady_clock::now() < deadline)
    for (auto& link : links) link->progress();
  for (size_t rank = 0; rank < back.size(); ++rank)
    EXPECT_TRUE(back[rank].is_done() && back[rank].is_ok()) << "of rank " << rank;
  EXPECT_EQ(std::ranges::count(received, sent), kLast);
  EXPECT_EQ(shm::rejected_connections(last), 0);
}

// The caller is turned away where there is no descriptor for it, and with one that its segment has
// none for.
template <int kFree>
void connect_to_rank_without_descriptors() {
  const Secret job = random_secret();
  auto client = make(0, 2, job), server = make(1, 2, job);
  const auto sent = pattern(0, 1, 1, 500);
  std::vector<std::byte> received(sent.size());
  Request out, back;
  client->connect(1, server->endpoint());
  client->send(out, 1, 1, ConstBytes(sent));
  {
    std::vector<base::FileDescriptor> free;
    for (int i = 0; i < kFree; ++i) free.emplace_back(::dup(0));
    const base::NoDescriptors none;
    free.clear();
    server->poll_all_next();
    server->progress();
  }
  EXPECT_EQ(server->state(0), PeerState::kUnknown);
  server->connect(0, client->endpoint());
  server->receive(back, 0, 1, Bytes(received));
  EXPECT_TRUE(
      becomes({client.get(), server.get()}, [&] { return back.is_done() && out.is_done(); }));
  EXPECT_TRUE(back.is_ok() && out.is_ok());
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(client->failure(1), nullptr);
  EXPECT_EQ(shm::rejected_connections(*server), 0);
}

TEST(ShmConnecting, ComesBackToARankThatHasNoDescriptorForAMoment) {
  base::in_child(connect_to_rank_without_descriptors<0>);
  base::in_child(connect_to_rank_without_descriptors<1>);
}

TEST(ShmConnecting, ARankThatHasNoMemoryForTheLinkTellsThePeer) {
  base::in_child([] {
    const Secret job = random_secret();
    const auto connecting = make(0, 2, job), peer = make(1, 2, job);
    const rlimit small{4096, 4096};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    connecting->connect(1, peer->endpoint());
    peer->connect(0, connecting->endpoint());
    Request back;
    peer->receive(back, 0, 1, Bytes{});
    EXPECT_TRUE(becomes({connecting.get(), peer.get()}, [&] { return back.is_done(); }));
    for (const auto* failure : {connecting->failure(1), peer->failure(0)}) {
      ASSERT_NE(failure, nullptr);
      EXPECT_EQ(failure->code, Errc::kResourceExhausted);
      EXPECT_NE(failure->reason.find("ulimit -f"), std::string::npos) << failure->reason;
    }
    EXPECT_EQ(shm::rejected_connections(*peer), 0);
  });
}

// Where a rank listens; the test says what happens there.
struct TestListener {
  std::string name = "torchcomms-test/" + std::to_string(random_number());
  base::FileDescriptor listener = listen_at(name);

  Endpoint endpoint() const {
    return {"shm", 1, 7, host_identity(), {name, std::to_string(::getpid())}};
  }
  // None, where nobody calls.
  base::FileDescriptor accept() const {
    return base::FileDescriptor(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  // Connections, until there is no room for one more.
  std::vector<base::FileDescriptor> fill() const {
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    std::vector<base::FileDescriptor> pending;
    while (auto connection = connect_to(name)) pending.push_back(std::move(connection));
    EXPECT_EQ(errno, EAGAIN);
    return pending;
  }
};

TEST(ShmConnecting, FailsWhereItIsTurnedAwayForGood) {
  const TestListener server;
  const auto link = make(0, 2, random_secret());
  const auto begin = std::chrono::steady_clock::now();
  link->connect(1, server.endpoint());
  size_t accepted = 0;
  EXPECT_TRUE(becomes({link.get()}, [&] {
    if (server.accept()) ++accepted;
    return link->state(1) == PeerState::kFailed;
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            kRetryDelays[0] + kRetryDelays[1] + kRetryDelays[2]);
  EXPECT_EQ(accepted, kRetryDelays.size() + 1);
  ASSERT_NE(link->failure(1), nullptr);
  EXPECT_EQ(link->failure(1)->code, Errc::kPeerFailed);
  EXPECT_NE(link->failure(1)->reason.find("closed the connection"), std::string::npos)
      << link->failure(1)->reason;
}

TEST(ShmConnecting, ASleeperCallsAgainWhereTheQueueWasFull) {
  const TestListener server;
  const auto pending = server.fill();
  const auto link = make(0, 2, random_secret());
  link->connect(1, server.endpoint());
  link->progress();
  EXPECT_EQ(link->state(1), PeerState::kConnecting);
  ASSERT_TRUE(link->prepare_sleep());
  while (server.accept()) continue;
  pollfd polled{link->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 20'000), 1);
  link->finish_sleep();
  EXPECT_TRUE(becomes({link.get()}, [&] { return link->state(1) == PeerState::kReady; }));
}

TEST(ShmConnecting, WhatAPeerThatIsToBeCalledAgainHasNotSeenIsUnsent) {
  const TestListener server;
  const std::byte sent{7};
  Request out;
  const auto link = make(0, 2, random_secret());
  link->connect(1, server.endpoint());
  link->send(out, 1, 1, ConstBytes(&sent, 1));
  EXPECT_FALSE(link->has_unsent());
  EXPECT_TRUE(server.accept());  // and closed
  const auto pending = server.fill();
  EXPECT_TRUE(becomes({link.get()}, [&] { return link->has_unsent(); }));
  while (server.accept()) continue;
  EXPECT_TRUE(becomes({link.get()}, [&] { return !link->has_unsent(); }));
  EXPECT_EQ(link->state(1), PeerState::kReady);
}

// Rank 0, in a process of its own, which runs `body` once it knows rank 1.
class RankZero {
 public:
  RankZero(const Secret& job, const std::function<void(Transport&, const Endpoint&)>& body) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    child_ = ::fork();
    if (child_ == 0) {
      const auto link = make(0, 2, job);
      write_text(pair[1], serialize(link->endpoint(), job));
      body(*link, parse_endpoint(read_text(pair[1]), job));
      ::_exit(0);
    }
    ::close(pair[1]);
    socket_ = base::FileDescriptor(pair[0]);
    endpoint_.emplace(parse_endpoint(read_text(pair[0]), job));
  }
  const Endpoint& endpoint() const { return *endpoint_; }
  void send_endpoint(const Transport& link, const Secret& job) const {
    write_text(socket_.get(), serialize(link.endpoint(), job));
  }
  void kill() const { ::kill(child_, SIGKILL); }
  void await_end() const { EXPECT_EQ(::waitpid(child_, nullptr, 0), child_); }

 private:
  pid_t child_ = -1;
  base::FileDescriptor socket_;
  std::optional<Endpoint> endpoint_;
};

TEST(ShmConnecting, AProcessThatEndsBeforeItHasConnectedFails) {
  const Secret job = random_secret();
  const RankZero peer(job, [](Transport&, const Endpoint&) { ::pause(); });
  const auto link = make(1, 2, job);
  std::byte byte{};
  Request back;
  link->connect(0, peer.endpoint());
  peer.send_endpoint(*link, job);
  link->receive(back, 0, 1, Bytes(&byte, 1));
  peer.kill();
  EXPECT_EQ(link->wait(back, in(kLong)), WaitResult::kDone);
  EXPECT_EQ(back.error(), Errc::kPeerFailed);
  ASSERT_NE(link->failure(0), nullptr);
  EXPECT_NE(link->failure(0)->reason.find("has exited"), std::string::npos)
      << link->failure(0)->reason;
  peer.await_end();
}

// It has connected, though nobody has looked before its end.
TEST(ShmConnecting, WhatAProcessHasSentIsReceivedAfterItsEnd) {
  for (const bool known_before : {true, false}) {
    const Secret job = random_secret();
    const auto sent = pattern(0, 1, 1, 500);
    const RankZero peer(job, [&](Transport& link, const Endpoint& endpoint) {
      link.connect(1, endpoint);
      Request out;
      link.send(out, 1, 1, ConstBytes(sent));
      if (!out.is_done()) ::_exit(1);
    });
    const auto link = make(1, 2, job);
    if (known_before) link->connect(0, peer.endpoint());
    peer.send_endpoint(*link, job);
    peer.await_end();
    if (!known_before) link->connect(0, peer.endpoint());
    std::vector<std::byte> received(sent.size());
    Request first, second;
    link->receive(first, 0, 1, Bytes(received));
    EXPECT_EQ(link->wait(first, in(kLong)), WaitResult::kDone);
    EXPECT_TRUE(first.is_ok());
    EXPECT_TRUE(received == sent);
    link->receive(second, 0, 1, Bytes(received));
    EXPECT_EQ(link->wait(second, in(kLong)), WaitResult::kDone);
    EXPECT_EQ(second.error(), Errc::kPeerFailed);
  }
}

}  // namespace
}  // namespace torch::comms::transport::test
