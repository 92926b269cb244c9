#include "transport/connect/endpoint.hpp"

#include <gtest/gtest.h>

#include <random>

#include <torchcomms/base/error.hpp>

#include "transport/memory.hpp"

namespace torch::comms::transport {
namespace {

const Endpoint kEndpoint{
    "tcp", 7, 0x1234567890abcdefu, "host/net/pid", {"10.0.0.1:4711", "[fe80::1%eth0]:4711"}};

Errc error_of(std::string_view text, const Secret& job) {
  try {
    parse_endpoint(text, job);
  } catch (const CommError& error) {
    return error.code();
  }
  return Errc::kInternal;
}

TEST(Endpoint, ComesBackAsItWas) {
  const auto job = random_secret();
  EXPECT_EQ(parse_endpoint(serialize(kEndpoint, job), job), kEndpoint);
}

TEST(Endpoint, OfAnotherJobIsRefused) {
  const auto text = serialize(kEndpoint, random_secret());
  EXPECT_EQ(error_of(text, random_secret()), Errc::kMismatch);
}

TEST(Endpoint, CutShortExtendedOrChangedIsRefused) {
  const auto job = random_secret();
  const auto text = serialize(kEndpoint, job);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_EQ(error_of(text.substr(0, size), job), Errc::kMismatch) << size;
  EXPECT_EQ(error_of(text + "x", job), Errc::kMismatch);
  for (size_t at = 0; at < text.size(); ++at) {
    auto changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 0x20);
    EXPECT_EQ(error_of(changed, job), Errc::kMismatch) << at;
  }
}

TEST(Endpoint, RandomTextIsRefused) {
  const auto job = random_secret();
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string text(random() % 200, ' ');
    for (auto& byte : text) byte = static_cast<char>(random());
    if (i % 2 == 0) text = serialize(kEndpoint, job).substr(0, random() % 60) + text;
    const auto code = error_of(text, job);
    EXPECT_TRUE(code == Errc::kMismatch || text == serialize(kEndpoint, job));
  }
}

TEST(Endpoint, OverItsCapIsRefusedBothWays) {
  const auto job = random_secret();
  EXPECT_EQ(error_of(std::string(kMaxEndpointBytes + 1, 'x'), job), Errc::kTooLarge);
  auto large = kEndpoint;
  large.host.assign(kMaxEndpointBytes, 'x');
  EXPECT_THROW(serialize(large, job), CommError);
  large = kEndpoint;
  large.addresses.assign(33, "a");
  EXPECT_THROW(serialize(large, job), CommError);
}

TEST(MemoryHandle, ComesBackAsItWasAndNothingElseDoes) {
  const MemoryHandle handle{3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto text = serialize(handle);
  ASSERT_EQ(text.size(), kMemoryHandleBytes);
  EXPECT_EQ(parse_memory_handle(text), handle);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_THROW(parse_memory_handle(text.substr(0, size)), CommError);
  EXPECT_THROW(parse_memory_handle(text + "x"), CommError);
  EXPECT_THROW(parse_memory_handle(std::string(kMemoryHandleBytes, 'x')), CommError);
}

}  // namespace
}  // namespace torch::comms::transport
