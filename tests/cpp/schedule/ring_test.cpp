#include "schedule/patterns/ring.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace torch::comms::schedule {
namespace {

void expect_ring(int index, int hosts, int local_size) {
  const int size = hosts * local_size;
  std::set<int> visited;
  for (int position = 0; position < size; ++position) {
    const int rank = host_ring_rank(index, position, hosts, local_size);
    const RingPosition place = host_ring(index, rank, hosts, local_size);
    visited.insert(rank);
    EXPECT_EQ(place.position, position);
    EXPECT_EQ(place.size, size);
    EXPECT_EQ(place.next, host_ring_rank(index, (position + 1) % size, hosts, local_size));
    EXPECT_EQ(host_ring(index, place.next, hosts, local_size).previous, rank);
  }
  EXPECT_EQ(visited.size(), static_cast<size_t>(size));
  EXPECT_GE(*visited.begin(), 0);
  EXPECT_LT(*visited.rbegin(), size);
}

TEST(HostRing, GoesThroughAllRanksOnce) {
  for (int hosts = 1; hosts <= 6; ++hosts)
    for (int local_size = 1; local_size <= 8; ++local_size)
      for (int index = 0; index <= local_size; ++index) expect_ring(index, hosts, local_size);
}

TEST(HostRing, CrossesHostsAtAnotherLocalRankInEachRing) {
  for (int hosts = 2; hosts <= 6; ++hosts)
    for (int local_size = 1; local_size <= 8; ++local_size) {
      std::map<int, int> leave, enter;  // by rank: how many rings
      for (int index = 0; index < local_size; ++index)
        for (int rank = 0; rank < hosts * local_size; ++rank) {
          const RingPosition place = host_ring(index, rank, hosts, local_size);
          if (place.next / local_size == rank / local_size) continue;
          ++leave[rank];
          ++enter[place.next];
          EXPECT_EQ(place.next / local_size, (rank / local_size + 1) % hosts);
          const bool last_of_odd = hosts % 2 != 0 && rank / local_size == hosts - 1;
          if (!last_of_odd) {
            EXPECT_EQ(place.next % local_size, rank % local_size) << "the rail changes";
          }
        }
      for (int rank = 0; rank < hosts * local_size; ++rank) {
        EXPECT_EQ(leave[rank], 1);
        EXPECT_EQ(enter[rank], 1);
      }
    }
}

TEST(HostRing, IsTheRingOfRanksOnOneRankAHost) {
  for (int rank = 0; rank < 5; ++rank) {
    const RingPosition hosts = host_ring(3, rank, 5, 1), ranks = rank_ring(rank, 5);
    EXPECT_EQ(hosts.position, ranks.position);
    EXPECT_EQ(hosts.previous, ranks.previous);
    EXPECT_EQ(hosts.next, ranks.next);
  }
}

}  // namespace
}  // namespace torch::comms::schedule
