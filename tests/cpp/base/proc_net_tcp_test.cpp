#include "base/net/proc_net_tcp.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "base/calls.hpp"
#include "base/net/listener.hpp"
#include "base/net/socket.hpp"

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
  const auto all = parse_proc_net_tcp(kTable);
  ASSERT_EQ(all.size(), 3U) << "one listens, and of one the other side is gone";
  EXPECT_EQ(all[0].local_port, 8080);
  EXPECT_EQ(all[0].remote_port, 40'000);
  EXPECT_EQ(all[1].inode, 13U);
  EXPECT_EQ(all[2].remote_port, 40'001);
}

TEST(Connections, ThoseWithItselfAreNoGuests) {
  const auto all = parse_proc_net_tcp(kTable);
  EXPECT_EQ(count_remote_peers(all, 8080, {}), 2);
  EXPECT_EQ(count_remote_peers(all, 8080, {12, 13}), 1);
  EXPECT_EQ(count_remote_peers(all, 8081, {}), 0);
}

constexpr std::chrono::seconds kLimit{20};

// The system takes its time to begin and to end them.
bool comes_to(int connections, uint16_t port) {
  const auto until = std::chrono::steady_clock::now() + kLimit;
  while (count_remote_connections(port) != connections)
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

TEST(Connections, OfAnotherProcessLastAsLongAsThat) {
  uint16_t port = 0;
  Listener listener(listen_on_all_interfaces(port));
  const auto own = call_at(port);
  EXPECT_TRUE(comes_to(0, port));
  Caller other(port);
  EXPECT_TRUE(comes_to(1, port));
  other.leave();
  EXPECT_TRUE(comes_to(0, port));
}

}  // namespace
}  // namespace torch::comms::base
