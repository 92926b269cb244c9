#include "core/rendezvous/store_keepalive.hpp"

#include <gtest/gtest.h>

#include "base/calls.hpp"
#include "core/rendezvous/tcp_store.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{20'000};

TEST(Lingering, AStoreStaysForOtherProcessesThatAreThere) {
  auto served = serve_store(0, kLimit, bootstrap::Deadline(kLimit), {});
  base::Caller other(served.port);
  keep_store_alive(std::move(served.store));
  // Those of this process do not count.
  EXPECT_TRUE(base::try_call_at(served.port));
  other.leave();
  const bootstrap::Deadline deadline(kLimit);
  while (base::try_call_at(served.port) && !deadline.has_passed()) continue;
  EXPECT_FALSE(base::try_call_at(served.port)) << "nobody is there any more";
}

}  // namespace
}  // namespace torch::comms
