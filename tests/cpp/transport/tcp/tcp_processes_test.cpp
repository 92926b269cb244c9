#include "base/setting.hpp"
#include "transport/fault_plans.hpp"
#include "transport/processes.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace torch::comms::transport::test {
namespace {

Link tcp(int ranks, uint32_t chunk_bytes = 256 * 1024) {
  return {"tcp", ranks, [=](const TransportOptions& options) {
            tcp::TcpOptions all{options};
            all.interface = "127.0.0.1";
            all.chunk_bytes = chunk_bytes;
            return make_tcp_transport(all);
          }};
}

TEST(TcpProcesses, ExchangeMessagesAndPuts) {
  for (const int status : run_processes(tcp(2), exchange_in_processes)) EXPECT_EQ(status, 0);
}

TEST(TcpProcesses, AKilledRankIsSeenWithinASecondAndTheOthersGoOn) { expect_survival(tcp(3)); }

TEST(TcpFaults, RandomPlansEndRightOrWithATypedError) {
  run_fault_plans(tcp(3, 2048), comms::test::setting("TC_TEST_FAULT_PLANS", 200), 3000, true);
}

}  // namespace
}  // namespace torch::comms::transport::test
