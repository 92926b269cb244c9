#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/net/socket.hpp"
#include "transport/tcp/stream_socket.hpp"
#include "transport/tcp/tcp_connector.hpp"
#include "transport/tcp/tcp_handshake.hpp"
#include "transport/tcp/tcp_transport.hpp"
#include "transport/world.hpp"

namespace torch::comms::transport::test {
namespace {

std::unique_ptr<Transport> rank_of_two(int rank, const Secret& job) {
  tcp::TcpOptions options;
  options.rank = rank;
  options.size = options.local_ranks = 2;
  options.job = job;
  options.interface = "127.0.0.1";
  return tcp::make_tcp_transport(options);
}

TEST(TcpStrangers, ManyRanksThatComeAtOnceAreAllLetIn) {
  constexpr int kPeers = 40;
  constexpr int kSockets = 8;  // of a connection: more in all than may be pending
  const Secret job = random_secret();
  const auto make = [&](int rank) {
    tcp::TcpOptions options;
    options.rank = rank;
    options.size = kPeers + 1;
    options.local_ranks = 2;
    options.sockets = kSockets;
    options.job = job;
    options.interface = "127.0.0.1";
    return tcp::make_tcp_transport(options);
  };
  const auto root = make(kPeers);
  std::vector<std::unique_ptr<Transport>> peers;
  for (int rank = 0; rank < kPeers; ++rank) {
    peers.push_back(make(rank));
    root->connect(rank, peers.back()->endpoint());
    peers.back()->connect(kPeers, root->endpoint());
  }
  // They say who they are before the root comes by.
  for (int i = 0; i < 20; ++i)
    for (const auto& peer : peers) peer->progress();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto is_waiting = [&](const auto& peer) {
    return peer->state(kPeers) == PeerState::kConnecting;
  };
  while (std::ranges::any_of(peers, is_waiting) && std::chrono::steady_clock::now() < end) {
    root->progress();
    for (const auto& peer : peers) peer->progress();
  }
  for (const auto& peer : peers) EXPECT_EQ(peer->state(kPeers), PeerState::kReady);
  EXPECT_EQ(tcp::rejected_connections(*root), 0u);
}

// Blocking: a connection that sends no valid hello.
base::FileDescriptor connect_raw(const Endpoint& endpoint) {
  const auto address = base::parse_address(endpoint.addresses.front());
  base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), address->get(), address->size), 0);
  return socket;
}

TEST(TcpStrangers, AreCountedAndDroppedAndTheRanksStillMeet) {
  const Secret job = random_secret();
  auto server = rank_of_two(1, job), client = rank_of_two(0, job);
  const auto& endpoint = server->endpoint();
  std::vector<base::FileDescriptor> open;
  uint64_t invalid_count = 0;
  const auto send_invalid = [&](const void* bytes, size_t size) {
    open.push_back(connect_raw(endpoint));
    EXPECT_EQ(::send(open.back().get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    ++invalid_count;
  };
  send_invalid("GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30);
  send_invalid("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on", 22);  // TLS
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    std::vector<uint32_t> noise(2000);
    for (auto& word : noise) word = static_cast<uint32_t>(random());
    send_invalid(noise.data(), noise.size() * 4);
  }
  tcp::TcpHello hello;
  hello.from = 0;
  hello.to = 1;
  hello.instance = endpoint.instance;
  hello.job = random_secret();
  send_invalid(&hello, sizeof hello);  // another job
  hello.job = job;
  hello.from = 1;
  send_invalid(&hello, sizeof hello);  // a rank that does not connect
  hello.from = 0;
  hello.channels = 200;
  send_invalid(&hello, sizeof hello);
  hello.channels = 1;
  hello.instance ^= 1;
  send_invalid(&hello, sizeof hello);  // another life of this rank
  for (int i = 0; i < 20; ++i) {
    connect_raw(endpoint);  // connects and closes
    ++invalid_count;
  }
  for (int i = 0; i < 200; ++i) {  // one byte, then silence
    open.push_back(connect_raw(endpoint));
    EXPECT_EQ(::send(open.back().get(), "T", 1, MSG_NOSIGNAL), 1);
    server->progress();
  }
  client->connect(1, endpoint);
  server->connect(0, client->endpoint());
  Request out, back;
  client->send(out, 1, 1, ConstBytes{});
  server->receive(back, 0, 1, Bytes{});
  Transport* links[] = {client.get(), server.get()};
  EXPECT_EQ(wait_until(links, server->abort_signal(), in(kLong), server->wait_policy(),
                       [&] { return back.is_done(); }),
            WaitResult::kDone);
  EXPECT_TRUE(back.is_ok());
  EXPECT_EQ(tcp::rejected_connections(*server), invalid_count);
}

TEST(TcpStrangers, ARankWhoseProcessListensNoMoreIsFailedWithItsAddress) {
  const Secret job = random_secret();
  auto client = rank_of_two(0, job), server = rank_of_two(1, job);
  const auto endpoint = server->endpoint();
  server.reset();
  client->connect(1, endpoint);
  Request out;
  client->send(out, 1, 1, ConstBytes{});
  EXPECT_EQ(client->wait(out, in(kLong)), WaitResult::kDone);
  EXPECT_EQ(out.error(), Errc::kPeerFailed);
  EXPECT_NE(client->failure(1)->reason.find(endpoint.addresses.front()), std::string::npos);
}

// The server welcomes all sockets of a connection and sends at once: its first frames may come
// before the client has seen the last welcome. That was taken for the end of the connection.
TEST(TcpConnecting, FramesThatComeBeforeTheLastWelcomeWait) {
  tcp::Poller poller;
  uint16_t port = 0;
  const auto listener = base::listen_on_all_interfaces(port);
  tcp::TcpHello hello;
  hello.channels = 2;
  tcp::TcpConnector connecting({"tcp", 1, 0, "", {"127.0.0.1:" + std::to_string(port)}}, hello,
                               poller, std::chrono::milliseconds(30'000));
  std::vector<tcp::PendingTcpConnection> pending;
  const auto deadline = in(kLong);
  const auto step = [&](const auto& until) {
    while (!until() && std::chrono::steady_clock::now() < deadline) {
      poller.poll();
      base::FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket) pending.emplace_back(std::move(socket));
    }
  };
  step([&] { return pending.size() == 2; });
  ASSERT_EQ(pending.size(), 2u);
  const tcp::TcpWelcome welcome;
  const std::string frames(100, 'x');
  const auto send = [](const tcp::PendingTcpConnection& connection, const void* bytes,
                       size_t size) {
    EXPECT_EQ(::send(connection.socket(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  };
  int polls = 0;
  step([&] { return pending[0].read() == tcp::PendingTcpConnection::State::kComplete; });
  send(pending[0], &welcome, sizeof welcome);
  send(pending[0], frames.data(), frames.size());
  step([&] { return ++polls > 100; });
  EXPECT_EQ(pending.size(), 2u);  // it has not tried again
  send(pending[1], &welcome, sizeof welcome);
  step([&] { return connecting.is_done(); });
  EXPECT_TRUE(connecting.is_done());
  for (const auto& socket : connecting.release_sockets()) poller.remove(socket.get());
}

// Frames as they come, and whether the socket may place them.
struct TestSink final : FrameSink {
  std::vector<std::pair<Frame, std::vector<std::byte>>> frames;
  std::vector<std::byte> data_target = std::vector<std::byte>(100'000);
  Bytes payload_target(const Frame& frame) noexcept override {
    return frame.kind == FrameKind::kData ? Bytes(data_target).first(frame.bytes) : Bytes{};
  }
  bool deliver(const Frame& frame, ConstBytes payload) noexcept override {
    frames.push_back({frame, {payload.begin(), payload.end()}});
    return true;
  }
};

struct SocketPair {
  SocketPair() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    writer = base::FileDescriptor(pair[0]);
    stream = std::make_unique<tcp::StreamSocket>(base::FileDescriptor(pair[1]), 100'000, 1);
  }
  base::FileDescriptor writer;
  std::unique_ptr<tcp::StreamSocket> stream;
};

TEST(TcpLane, CutsFramesWhereverTheBytesAreCut) {
  for (const size_t part : {size_t{1}, size_t{7}, size_t{33}, size_t{5000}, size_t{70'000}}) {
    SocketPair pair;
    TestSink sink;
    std::vector<std::byte> stream;
    std::vector<std::vector<std::byte>> want;
    for (const size_t size : {size_t{0}, size_t{1}, size_t{31}, size_t{9'000}, size_t{90'000}})
      for (const auto kind : {FrameKind::kEager, FrameKind::kData}) {
        if (kind == FrameKind::kData && size == 0) continue;
        if (part == 1 && size > 10'000) continue;
        Frame frame;
        frame.kind = kind;
        frame.bytes = static_cast<uint32_t>(size);
        const auto header = std::as_bytes(std::span(&frame, 1));
        want.push_back(pattern(0, 0, size, size));
        stream.insert(stream.end(), header.begin(), header.end());
        stream.insert(stream.end(), want.back().begin(), want.back().end());
      }
    for (size_t at = 0; at < stream.size();) {
      const auto size = std::min(part, stream.size() - at);
      const auto sent = ::send(pair.writer.get(), stream.data() + at, size, MSG_DONTWAIT);
      if (sent > 0) at += static_cast<size_t>(sent);
      pair.stream->receive(sink);
    }
    while (pair.stream->receive(sink)) {
    }
    ASSERT_EQ(sink.frames.size(), want.size()) << part;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(sink.frames[i].second == want[i]);
    EXPECT_EQ(pair.stream->error_text(), "");
  }
}

TEST(TcpLane, RandomBytesBreakItAndAllocateNothingLarge) {
  std::mt19937 random(9);
  int broken = 0;
  for (int i = 0; i < 2000; ++i) {
    SocketPair pair;
    TestSink sink;
    std::vector<unsigned char> noise(200 + random() % 3000);
    for (auto& byte : noise) byte = static_cast<unsigned char>(random());
    if (i % 2 == 0) noise[0] = 1 + random() % 13, noise[1] = noise[2] = noise[3] = 0;
    ASSERT_EQ(::send(pair.writer.get(), noise.data(), noise.size(), 0),
              static_cast<ssize_t>(noise.size()));
    pair.stream->receive(sink);
    broken += !pair.stream->error_text().empty();
  }
  EXPECT_GT(broken, 1900);
}

TEST(TcpLane, WhatTheSocketDoesNotTakeIsLentAndGivenBack) {
  SocketPair sending;
  SocketPair receiving;
  // The socket under test sends into `writer`'s end.
  std::vector<std::byte> large = pattern(1, 2, 3, 100'000);
  Frame frame;
  frame.kind = FrameKind::kData;
  frame.bytes = 100'000;
  const ConstBytes payload(large);
  uint32_t frames_in_use = 0;
  int accepted = 0;
  while (frames_in_use == 0 && accepted < 1000)
    if (sending.stream->try_send(frame, {&payload, 1}, &frames_in_use)) ++accepted;
  ASSERT_EQ(frames_in_use, 1u);
  EXPECT_FALSE(sending.stream->try_send(frame, {&payload, 1}, &frames_in_use));
  // Its owner takes the memory back in the middle: the frame still arrives whole.
  sending.stream->cancel_writes(large);
  EXPECT_EQ(frames_in_use, 0u);
  const auto want = large;
  std::fill(large.begin(), large.end(), std::byte{0});
  tcp::StreamSocket reader(std::move(sending.writer), 100'000, 1);
  TestSink sink;
  for (int i = 0; i < 1000 && static_cast<int>(sink.frames.size()) < accepted; ++i) {
    reader.receive(sink);
    sending.stream->flush();
  }
  ASSERT_EQ(static_cast<int>(sink.frames.size()), accepted);
  for (const auto& [header, bytes] : sink.frames) EXPECT_TRUE(bytes == want);
}

// Lengths over 32 bits: one message of 130 times the same memory.
struct Counting final : ReceiveSink {
  uint64_t taken = 0;
  void consume(uint64_t, ConstBytes chunk) noexcept override { taken += chunk.size(); }
};

TEST(TcpLengths, AMessageOverTwoGibibytesArrivesWhole) {
  if (kSanitized) GTEST_SKIP() << "2 GiB take half a minute under a sanitizer";
  const Secret job = random_secret();
  auto client = rank_of_two(0, job), server = rank_of_two(1, job);
  client->connect(1, server->endpoint());
  server->connect(0, client->endpoint());
  const std::vector<std::byte> memory(17 << 20);
  const std::vector<ConstBytes> pieces(130, memory);
  Counting counting;
  Request out, back;
  server->receive(back, 0, 1, 3ull << 30, counting);
  client->send(out, 1, 1, pieces);
  Transport* links[] = {client.get(), server.get()};
  EXPECT_EQ(wait_until(links, server->abort_signal(), in(kLong * 3), server->wait_policy(),
                       [&] { return back.is_done() && out.is_done(); }),
            WaitResult::kDone);
  EXPECT_TRUE(back.is_ok());
  EXPECT_EQ(back.bytes(), 130ull * (17 << 20));
  EXPECT_EQ(counting.taken, back.bytes());
}

}  // namespace
}  // namespace torch::comms::transport::test
