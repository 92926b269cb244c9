#include "transport/fault_plans.hpp"
#include "transport/processes.hpp"
#include "transport/shm/shm_transport.hpp"

namespace torch::comms::transport::test {
namespace {

Link shm(int ranks, const shm::RingShape& ring = {256, 0, 0}, bool single_copy = true) {
  return {"shm", ranks, [=](const TransportOptions& options) {
            shm::ShmOptions all{options};
            all.ring = ring;
            all.single_copy = single_copy;
            return make_shm_transport(all);
          }};
}

TEST(ShmProcesses, ShareMemoryAndMessages) {
  for (const int status : run_processes(shm(2), exchange_in_processes)) EXPECT_EQ(status, 0);
}

TEST(ShmProcesses, AKilledRankIsSeenWithinASecondAndTheOthersGoOn) { expect_survival(shm(3)); }

TEST(ShmFaults, AThousandRandomPlansEndRightOrWithATypedError) {
  run_fault_plans(shm(3, {16, 8192, 2048}, false), 1000, 300, false);
  run_fault_plans(shm(3, {16, 8192, 2048}), 300, 300, false);
}

}  // namespace
}  // namespace torch::comms::transport::test
