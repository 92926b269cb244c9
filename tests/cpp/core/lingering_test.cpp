#include "core/lingering.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/handles.hpp"
#include "base/socket.hpp"
#include "core/tcp_store.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{20'000};

// Whether somebody takes it.
bool call_at(uint16_t port, base::FileDescriptor& socket) {
  socket = base::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = base::parse_address(base::address_text("127.0.0.1", port));
  return ::connect(socket.get(), address->get(), address->size) == 0;
}

TEST(Lingering, AStoreStaysForOtherProcessesThatAreThere) {
  auto served = serve_store(0, kLimit, bootstrap::Deadline(kLimit), {});
  int stay[2], here[2];
  ASSERT_EQ(::pipe(stay), 0);
  ASSERT_EQ(::pipe(here), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    base::FileDescriptor held;
    char byte = call_at(served.port, held) ? 'y' : 'n';
    ::close(stay[1]);
    static_cast<void>(::write(here[1], &byte, 1));
    static_cast<void>(::read(stay[0], &byte, 1));
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(here[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  linger(std::move(served.store));
  base::FileDescriptor called;
  // Those of this process do not count.
  EXPECT_TRUE(call_at(served.port, called));
  ::close(stay[1]);
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  const bootstrap::Deadline deadline(kLimit);
  while (call_at(served.port, called) && !deadline.passed()) continue;
  EXPECT_FALSE(call_at(served.port, called)) << "nobody is there any more";
  for (const int end : {stay[0], here[0], here[1]}) ::close(end);
}

}  // namespace
}  // namespace torch::comms
