#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "transport/shm/shm_handshake.hpp"
#include "transport/shm/shm_segment.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/world.hpp"

namespace torch::comms::transport::test {
namespace {

std::unique_ptr<Transport> rank_of_two(int rank, const Secret& job) {
  shm::ShmOptions options;
  options.rank = rank;
  options.size = options.local_ranks = 2;
  options.job = job;
  return shm::make_shm_transport(options);
}

TEST(ShmStrangers, AreCountedAndDroppedAndTheRanksStillMeet) {
  const Secret job = random_secret();
  auto server = rank_of_two(1, job), client = rank_of_two(0, job);
  const auto& endpoint = server->endpoint();
  std::vector<base::FileDescriptor> open;
  const auto connect_raw = [&] {
    open.push_back(connect_to(endpoint.addresses.front()));
    EXPECT_TRUE(open.back());
    return open.back().get();
  };
  const shm::RingShape shape{256, 512 * 1024, 128 * 1024};
  const auto valid_hello = [&] {
    shm::ShmHello hello;
    hello.from = 0;
    hello.to = 1;
    hello.instance = endpoint.instance;
    hello.job = job;
    hello.shape = shape;
    return hello;
  };
  const base::FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  uint64_t invalid_count = 0;
  const auto send_invalid = [&](const shm::ShmHello& hello, int descriptor) {
    EXPECT_TRUE(shm::send_hello(connect_raw(), hello, descriptor));
    ++invalid_count;
  };
  auto hello = valid_hello();
  hello.job = random_secret();
  send_invalid(hello, null.get());
  hello = valid_hello();
  hello.instance ^= 1;
  send_invalid(hello, null.get());
  hello = valid_hello();
  hello.from = 5;
  send_invalid(hello, null.get());
  hello = valid_hello();
  hello.magic = 1;
  send_invalid(hello, null.get());
  hello = valid_hello();
  hello.shape.cells = 64;
  send_invalid(hello, null.get());
  EXPECT_EQ(::send(connect_raw(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
  ++invalid_count;
  connect_raw();
  open.pop_back();  // connects and closes
  ++invalid_count;
  for (int i = 0; i < 20; ++i) connect_raw();  // and some that say nothing

  client->connect(1, endpoint);
  server->connect(0, client->endpoint());
  Request out, back;
  client->send(out, 1, 1, ConstBytes{});
  server->receive(back, 0, 1, Bytes{});
  EXPECT_EQ(server->wait(back, in(kLong)), WaitResult::kDone);
  EXPECT_TRUE(back.is_ok());
  EXPECT_EQ(shm::rejected_connections(*server), invalid_count);
}

TEST(ShmStrangers, AMemoryThatCouldShrinkIsNotAdopted) {
  const shm::RingShape shape{8, 1024, 512};
  base::FileDescriptor unsealed(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 1 << 20), 0);
  EXPECT_THROW(shm::ShmSegment::adopt(std::move(unsealed), shape), CommError);
  EXPECT_THROW(shm::ShmSegment::adopt(shm::create_memory("test", 100), shape), CommError);
}

}  // namespace
}  // namespace torch::comms::transport::test
