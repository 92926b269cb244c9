#include "base/connections.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "base/handles.hpp"
#include "base/listener.hpp"
#include "base/socket.hpp"

namespace torch::comms::base {
namespace {

constexpr const char* kTable =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n"
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 "
    "1 0000000000000000 100 0 0 10 0\n"
    "   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 12 "
    "1 0000000000000000 20 4 30 10 -1\n"
    "   2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 02:00000A5B 00000000  1000        0 13 "
    "2 0000000000000000 20 4 30 10 -1\n"
    "   3: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000200007F:9C41 01 "
    "00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 20 4 30 10 -1\n"
    "   4: 0100007F:1F90 0300007F:9C42 08 00000000:00000000 00:00000000 00000000  1000        0 14 "
    "1 0000000000000000 20 4 30 10 -1\n"
    "cut off";

TEST(Connections, AreReadFromTheSystemsTable) {
  const auto all = parse_connections(kTable);
  ASSERT_EQ(all.size(), 3U) << "one listens, and of one the other side is gone";
  EXPECT_EQ(all[0].local_port, 8080);
  EXPECT_EQ(all[0].remote_port, 40'000);
  EXPECT_EQ(all[1].inode, 13U);
  EXPECT_EQ(all[2].remote_port, 40'001);
}

TEST(Connections, ThoseWithItselfAreNoGuests) {
  const auto all = parse_connections(kTable);
  EXPECT_EQ(count_guests(all, 8080, {}), 2);
  EXPECT_EQ(count_guests(all, 8080, {12, 13}), 1);
  EXPECT_EQ(count_guests(all, 8081, {}), 0);
}

constexpr std::chrono::seconds kLimit{20};

// The system takes its time to begin and to end them.
bool comes_to(int connections, uint16_t port) {
  const auto until = std::chrono::steady_clock::now() + kLimit;
  while (connections_from_elsewhere(port) != connections)
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

FileDescriptor call_at(uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = parse_address(address_text("127.0.0.1", port));
  EXPECT_EQ(::connect(socket.get(), address->get(), address->size), 0);
  return socket;
}

TEST(Connections, OfAnotherProcessLastAsLongAsThat) {
  uint16_t port = 0;
  Listener listener(listen_anywhere(port));
  const auto own = call_at(port);
  EXPECT_TRUE(comes_to(0, port));
  int stay[2], here[2];
  ASSERT_EQ(::pipe(stay), 0);
  ASSERT_EQ(::pipe(here), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const auto held = call_at(port);
    char byte = 0;
    ::close(stay[1]);
    static_cast<void>(::write(here[1], "x", 1));
    static_cast<void>(::read(stay[0], &byte, 1));
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(here[0], &byte, 1), 1);
  EXPECT_TRUE(comes_to(1, port));
  ::close(stay[1]);
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  EXPECT_TRUE(comes_to(0, port));
  for (const int end : {stay[0], here[0], here[1]}) ::close(end);
}

}  // namespace
}  // namespace torch::comms::base
