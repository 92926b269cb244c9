#include "transport/shm/cma.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

// Copies between processes, of this one to itself.
namespace torch::comms::transport::shm {
namespace {

uint64_t address_of(const void* place) { return reinterpret_cast<uint64_t>(place); }

class Copies : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_cma_available()) GTEST_SKIP() << "the system does not copy between processes";
  }
};

TEST_F(Copies, ALargeOneGoesInParts) {
  const std::vector<std::byte> from(3 * kMaxBytesAfterClose + 5, std::byte{7});
  std::vector<std::byte> into(from.size());
  const uint32_t key = 42;
  EXPECT_EQ(cma_write(::getpid(), address_of(into.data()), from, address_of(&key), key),
            CmaResult::kDone);
  EXPECT_EQ(into, from);
}

// The word lies in the second part of what is written, which clears it.
TEST_F(Copies, NothingIsWrittenAfterThePartDuringWhichTheMemoryWasClosed) {
  const std::vector<std::byte> from(4 * kMaxBytesAfterClose, std::byte{7});
  std::vector<std::byte> into(from.size());
  const uint32_t key = 42;
  auto* word = into.data() + kMaxBytesAfterClose + kMaxBytesAfterClose / 2;
  std::memcpy(word, &key, sizeof key);
  EXPECT_EQ(cma_write(::getpid(), address_of(into.data()), from, address_of(word), key),
            CmaResult::kClosed);
  const auto end = into.begin() + 2 * kMaxBytesAfterClose;
  EXPECT_EQ(std::count(into.begin(), end, std::byte{7}), 2 * kMaxBytesAfterClose);
  EXPECT_EQ(std::count(end, into.end(), std::byte{0}), 2 * kMaxBytesAfterClose);
}

TEST_F(Copies, NothingIsWrittenToClosedMemory) {
  const std::vector<std::byte> from(8, std::byte{7});
  std::vector<std::byte> into(from.size());
  const uint32_t key = 0;
  EXPECT_EQ(cma_write(::getpid(), address_of(into.data()), from, address_of(&key), 42),
            CmaResult::kClosed);
  EXPECT_EQ(into, std::vector<std::byte>(from.size()));
}

}  // namespace
}  // namespace torch::comms::transport::shm
