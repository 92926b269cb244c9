#include "transport/tcp/keepalive.hpp"

#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "transport/tcp/tcp_connection.hpp"

namespace torch::comms::transport::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{200};

struct Counting final : FrameSink {
  uint64_t bytes = 0;
  Bytes payload_target(const Frame&) noexcept override { return {}; }
  bool deliver(const Frame&, ConstBytes payload) noexcept override {
    bytes += payload.size();
    return true;
  }
};

// Two ends of a connection, in one thread.
struct Pair {
  Poller here, there;
  KeepaliveWatch watch{here, kLimit}, other{there, milliseconds(0)};
  std::unique_ptr<TcpConnection> from, to;

  Pair() {
    uint16_t port = 0;
    const auto listener = base::listen_on_all_interfaces(port);
    const auto address = base::parse_address(base::format_address("127.0.0.1", port));
    base::FileDescriptor first(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(first.get(), address->get(), address->size), 0);
    base::FileDescriptor second(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    from = channel(std::move(first), here, watch);
    to = channel(std::move(second), there, other);
  }

  // Sends until nothing more fits; so many bytes.
  uint64_t fill() {
    const std::vector<std::byte> payload(16 * 1024);
    const ConstBytes bytes(payload);
    Frame frame;
    frame.kind = FrameKind::kEager;
    frame.bytes = static_cast<uint32_t>(payload.size());
    uint64_t sent = 0;
    uint32_t frames_in_use = 0;
    while (from->try_send(frame, std::span(&bytes, 1), &frames_in_use)) sent += payload.size();
    return sent;
  }

  // The watch has looked once more, or something else has come.
  void tick() {
    pollfd polled{here.event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&polled, 1, 20'000), 1);
    here.poll();
  }

 private:
  struct Nobody final : Poller::Client {
    void on_ready(int, uint32_t) override {}
  } nobody_;
  std::unique_ptr<TcpConnection> channel(base::FileDescriptor socket, Poller& poller,
                                         KeepaliveWatch& keepalive_watch) {
    poller.add(socket.get(), 0, nobody_);
    std::vector<base::FileDescriptor> sockets;
    sockets.push_back(std::move(socket));
    return std::make_unique<TcpConnection>(std::move(sockets), 1u << 20, poller, keepalive_watch);
  }
};

TEST(Silence, LastsSinceAnAnswerIsOwedAndBeginsAgainWithEachAnswer) {
  Keepalive keepalive;
  const Keepalive::Time start{std::chrono::hours(1)};
  const auto after = [&](int ms, bool is_pending, int last_ms) {
    return keepalive.unanswered_for({is_pending, milliseconds(last_ms)}, start + milliseconds(ms))
               .count() /
           1000000;
  };
  EXPECT_EQ(after(0, false, 5000), 0);
  EXPECT_EQ(after(10, true, 5010), 0);  // owed now: the answer before does not count
  EXPECT_EQ(after(40, true, 5040), 30);
  EXPECT_EQ(after(60, true, 10), 0);  // one at 50, and more is owed
  EXPECT_EQ(after(100, true, 50), 40);
  EXPECT_EQ(after(110, false, 60), 0);
  EXPECT_EQ(after(200, true, 150), 0);
}

TEST(SilenceWatch, APeerThatStandsStillKeepsItsConnection) {
  Pair pair;
  uint64_t sent = pair.fill();
  EXPECT_GT(sent, 0u);
  Counting nothing;
  for (int ticks = 0; ticks < 20; ++ticks) {  // five limits
    pair.tick();
    ASSERT_EQ(pair.from->receive(nothing), PeerConnection::ReceiveStatus::kNothing)
        << pair.from->error_text();
  }
  Counting sink;
  while (sink.bytes < sent) {
    pair.there.poll();
    ASSERT_NE(pair.to->receive(sink), PeerConnection::ReceiveStatus::kBroken)
        << pair.to->error_text();
    pair.here.poll();
  }
  EXPECT_EQ(sink.bytes, sent);
}

TEST(SilenceWatch, LooksNoMoreWhenAllIsAnswered) {
  Pair pair;
  EXPECT_GT(pair.fill(), 0u);
  Counting sink;
  while (!pair.from->is_delivered()) {
    pair.there.poll();
    pair.to->receive(sink);
    pair.here.poll();
  }
  EXPECT_TRUE(pair.watch.is_ticking());
  pair.tick();
  EXPECT_FALSE(pair.watch.is_ticking());
}

void set_loopback(bool up) {
  const base::FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = static_cast<short>(up ? IFF_UP | IFF_RUNNING : 0);
  ASSERT_EQ(::ioctl(socket.get(), SIOCSIFFLAGS, &request), 0) << std::strerror(errno);
}

TEST(SilenceWatch, AMachineThatIsGoneIsGivenUp) {
  std::string why;
  std::thread elsewhere([&] {  // the thread's own network
    if (::unshare(CLONE_NEWNET) != 0) {
      why = std::string("no private network: ") + std::strerror(errno);
      return;
    }
    set_loopback(true);
    Pair pair;
    set_loopback(false);
    EXPECT_GT(pair.fill(), 0u);
    Counting nothing;
    while (pair.from->receive(nothing) != PeerConnection::ReceiveStatus::kBroken) pair.tick();
    EXPECT_NE(pair.from->error_text().find("200 ms"), std::string::npos) << pair.from->error_text();
    EXPECT_EQ(pair.from->error_code(), Errc::kPeerFailed);
  });
  elsewhere.join();
  if (!why.empty()) GTEST_SKIP() << why;
}

}  // namespace
}  // namespace torch::comms::transport::tcp
