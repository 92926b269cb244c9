#include "core/rendezvous/init_handle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

InitHandleInfo sample() {
  return {.backend = "gloo",
          .rank = 3,
          .uuid = -7,
          .host = "fe80::1",
          .port = 29500,
          .identity = 0x0123456789abcdef};
}

bool is_refused(const std::string& text) {
  try {
    parse_init_handle(text, "gloo");
    return false;
  } catch (const CommError& e) {
    return e.code() == Errc::kInvalidArgument;
  }
}

TEST(MemberHandle, IsReadAsItWasWritten) {
  EXPECT_EQ(sample().to_text(), "gloo:3:-7:fe80::1:29500:2:0123456789abcdef");
  EXPECT_EQ(parse_init_handle(sample().to_text(), "gloo").to_text(), sample().to_text());
  const InitHandleInfo unknown{.backend = "gloo", .identity = 5};
  EXPECT_EQ(unknown.to_text(), "gloo:-1:-1:-1:-1:2:0000000000000005");
  EXPECT_EQ(parse_init_handle(unknown.to_text(), "gloo").host, "");
}

TEST(MemberHandle, TakesItsPlaceFromAStoresAddress) {
  auto handle = sample();
  handle.set_store_address("tcp://node-7:4000");
  EXPECT_EQ(handle.to_text(), "gloo:3:-7:node-7:4000:2:0123456789abcdef");
  InitHandleInfo other{.backend = "gloo"};
  other.set_store_address("file /tmp/store");
  EXPECT_EQ(other.host, "");
}

TEST(MemberHandle, SaysOfAStoreThatItsMemberServesWhereLoopbackReachesIt) {
  auto handle = sample();
  handle.loopback = 0xab;
  EXPECT_EQ(handle.to_text(), "gloo:3:-7:fe80::1@00000000000000ab:29500:2:0123456789abcdef");
  const auto read = parse_init_handle(handle.to_text(), "gloo");
  EXPECT_EQ(read.host, "fe80::1");
  EXPECT_EQ(read.loopback, 0xabu);
  EXPECT_TRUE(read.has_same_address(handle));
  EXPECT_FALSE(read.has_same_address(sample())) << "another host may have the same address";
  const InitHandleInfo unknown{.backend = "gloo"};
  EXPECT_FALSE(unknown.has_same_address(unknown));
  for (const char* place : {"host@", "host@ab", "host@0000000000000000:1", "-1@00000000000000ab:1",
                            "host@00000000000000ab:-1", "@00000000000000ab:1", "host@@"})
    EXPECT_TRUE(is_refused("gloo:3:-7:" + std::string(place) + ":2:0123456789abcdef")) << place;
}

TEST(MemberHandle, RefusesWhatIsNone) {
  for (const char* text :
       {"", "gloo", "gloo:", "gloo:3:-7:host:29500:2:0123456789abcdeg", "gloo:3:-7:host:29500:2:12",
        "gloo:3:-7:host:65536:2:0123456789abcdef", "gloo:3:-7:host:29500:3:0123456789abcdef",
        "gloo:-2:-7:host:29500:2:0123456789abcdef", "gloo:3:x:host:29500:2:0123456789abcdef",
        "gloo:3:-7::29500:2:0123456789abcdef", "gloo:3:-7:29500:2:0123456789abcdef",
        "nccl:3:-7:host:29500:2:0123456789abcdef", ":::::::", "gloo:3"})
    EXPECT_TRUE(is_refused(text)) << text;
  EXPECT_TRUE(is_refused("gloo:3:-7:" + std::string(100'000, 'h') + ":1:2:0123456789abcdef"));
}

TEST(MemberHandle, OfNoTextDoesItDoMoreThanReadOrRefuse) {
  std::mt19937 random(7);
  const auto text = sample().to_text();
  int read = 0;
  for (int round = 0; round < 100'000; ++round) {
    auto changed = text;
    for (unsigned i = 0; i <= random() % 4; ++i) {
      const auto at = random() % changed.size();
      switch (random() % 3) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, random() % 5);
          break;
        default:
          changed.insert(at, text.substr(random() % text.size(), random() % 6));
      }
      if (changed.empty()) changed = ":";
    }
    if (is_refused(changed)) continue;
    ++read;
    const auto handle = parse_init_handle(changed, "gloo");
    EXPECT_EQ(parse_init_handle(handle.to_text(), "gloo").to_text(), handle.to_text()) << changed;
  }
  EXPECT_GT(read, 0);
}

TEST(MemberHandle, ConnectedMembersComeFirstInTheirOrder) {
  std::vector<InitHandleInfo> set;
  for (const int rank : {10, -1, 2, -1, 0})
    set.push_back({.backend = "gloo", .rank = rank, .identity = set.size()});
  std::sort(set.begin(), set.end(), is_ordered_before);
  std::vector<uint64_t> order;
  for (const auto& handle : set) order.push_back(handle.identity);
  EXPECT_EQ(order, (std::vector<uint64_t>{4, 2, 0, 1, 3}));
}

}  // namespace
}  // namespace torch::comms
