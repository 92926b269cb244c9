#include "core/rendezvous/tcp_probe.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Socket {
 public:
  Socket() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Socket() { ::close(fd_); }
  void listen() const { EXPECT_EQ(::listen(fd_, 4), 0); }
  uint16_t port() const { return port_; }

 private:
  int fd_;
  uint16_t port_ = 0;
};

TEST(Reach, ReturnsWhenTheOtherSideListens) {
  const Socket socket;
  socket.listen();
  EXPECT_NO_THROW(wait_until_reachable("127.0.0.1", socket.port(), Deadline(seconds(10)), {}));
}

TEST(Reach, WaitsForASideThatStartsLater) {
  const Socket socket;
  std::jthread later([&] {
    // Long enough for the first tries to be refused.
    EXPECT_THROW(wait_until_reachable("127.0.0.1", socket.port(), Deadline(milliseconds(50)), {}),
                 CommError);
    socket.listen();
  });
  EXPECT_NO_THROW(wait_until_reachable("127.0.0.1", socket.port(), Deadline(seconds(10)), {}));
}

TEST(Reach, TellsTheReasonAtTheLimit) {
  const Socket socket;
  const auto begin = Deadline::Clock::now();
  try {
    wait_until_reachable("127.0.0.1", socket.port(), Deadline(milliseconds(120)),
                         {.op = "new_comm", .comm = "c", .rank = 3});
    FAIL();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kTimeout);
    EXPECT_EQ(std::string(e.what()), "new_comm on 'c' (rank 3): cannot reach tcp://127.0.0.1:" +
                                         std::to_string(socket.port()) + ": Connection refused");
  }
  const auto took = Deadline::Clock::now() - begin;
  EXPECT_GE(took, milliseconds(119));
  EXPECT_LT(took, seconds(1));
}

TEST(OwnAddress, KnowsThisHostAndOthers) {
  EXPECT_TRUE(is_own_address("127.0.0.1"));
  EXPECT_TRUE(is_own_address("127.9.9.9"));
  EXPECT_TRUE(is_own_address("::1"));
  EXPECT_FALSE(is_own_address("203.0.113.77"));  // set aside for documentation
  EXPECT_FALSE(is_own_address("no-such-host.invalid"));
}

TEST(OwnAddress, IsOneOfThisHosts) {
  for (const char* hint : {"", "127.0.0.1", "203.0.113.77", "no-such-host.invalid"}) {
    const auto own = own_address(hint);
    EXPECT_TRUE(is_own_address(own)) << own;
  }
  EXPECT_EQ(own_address(own_address("")), own_address(""));
}

}  // namespace
}  // namespace torch::comms
