#include "backends/common/peer_monitor.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <thread>
#include <vector>

#include "base/net/socket.hpp"

namespace torch::comms::common {
namespace {

using std::chrono::milliseconds;

// One collective is open, of as many elements as the test says.
struct OneCall final : monitor::CollectiveLogReader {
  explicit OneCall(int64_t elements) : count(elements) {}
  uint64_t first_incomplete() const override { return 1; }
  monitor::RankStatus status_of(uint64_t number) const override {
    monitor::RankStatus answer;
    answer.progress.called = 1;
    if (number != 1) return answer;
    answer.fingerprints[0].sequence = number;
    answer.fingerprints[0].count = count;
    return answer;
  }
  const int64_t count;
};

// Runs body(rank, group_monitor) for two ranks, which are threads and call one collective of
// counts[rank] elements.
template <class Body>
void run(const std::vector<int64_t>& counts, const Body& body) {
  std::vector<std::string> blobs(2);
  std::barrier all(2);
  const auto secret = base::random_secret();
  const auto rank_main = [&](int rank) {
    const auto exchange = [&](std::string own_blob) {
      blobs[static_cast<size_t>(rank)] = std::move(own_blob);
      all.arrive_and_wait();
      return monitor::MonitorNetwork::MonitorExchangeResult{blobs, secret};
    };
    const auto network = monitor::MonitorNetwork::make(rank, 2, "127.0.0.1", exchange);
    body(rank, network->world_group(std::make_shared<OneCall>(counts[static_cast<size_t>(rank)])));
    all.arrive_and_wait();
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
}

// Waits until rank 0 has closed the communicator, then asks about this rank's second collective.
std::optional<CommError> after_peer_close(
    const std::shared_ptr<monitor::GroupMonitor>& group_monitor) {
  while (!group_monitor->has_peer_closes())
    group_monitor->wait_consistent(UINT64_MAX, milliseconds(5));
  PeerMonitor peers(group_monitor, nullptr);
  EXPECT_FALSE(peers.closed_before({}, 1));
  return peers.closed_before({}, 2);
}

TEST(Others, ARankThatClosedBeforeACollectiveIsNamed) {
  run({8, 8}, [](int rank, const std::shared_ptr<monitor::GroupMonitor>& group_monitor) {
    if (rank == 0) return group_monitor->close();
    const auto why = after_peer_close(group_monitor);
    ASSERT_TRUE(why);
    EXPECT_EQ(why->code(), Errc::kPeerFailed);
    EXPECT_EQ(why->context().peer, 0);
  });
}

TEST(Others, ADisagreementCountsMoreThanTheDepartureOfARankThatWasToldOfIt) {
  run({8, 9}, [](int rank, const std::shared_ptr<monitor::GroupMonitor>& group_monitor) {
    if (rank == 0) {
      EXPECT_TRUE(group_monitor->find_mismatch(milliseconds(0), milliseconds(10'000)));
      return group_monitor->close();
    }
    const auto why = after_peer_close(group_monitor);
    ASSERT_TRUE(why);
    EXPECT_EQ(why->code(), Errc::kMismatch) << why->what();
  });
}

}  // namespace
}  // namespace torch::comms::common
