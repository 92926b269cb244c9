#include "base/net/interfaces.hpp"

#include <gtest/gtest.h>

#include <torchcomms/base/error.hpp>

#include "base/net/socket.hpp"

namespace torch::comms::base {
namespace {

const std::vector<InterfaceAddress> kAll{
    {"lo", "127.0.0.1", true, true},       {"docker0", "172.17.0.1", false, true},
    {"eth0", "fe80::1%eth0", false, true}, {"eth0", "2001:db8::5", false, true},
    {"eth1", "10.0.0.5", false, true},     {"eth2", "10.1.0.5", false, false}};
using Addresses = std::vector<std::string>;

TEST(Interfaces, TheBestOfThoseThatAreUpIsChosenWithItsReason) {
  const auto choice = choose_addresses(kAll, "");
  EXPECT_EQ(choice.addresses, (Addresses{"10.0.0.5", "2001:db8::5"}));
  EXPECT_NE(choice.reason.find("eth1"), std::string::npos);
}

TEST(Interfaces, WhatWasAskedForIsTakenByNameOrAddress) {
  EXPECT_EQ(choose_addresses(kAll, "eth0").addresses, (Addresses{"fe80::1%eth0", "2001:db8::5"}));
  EXPECT_EQ(choose_addresses(kAll, "127.0.0.1").addresses, Addresses{"127.0.0.1"});
  try {
    choose_addresses(kAll, "eth9");
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), Errc::kInvalidArgument);
    EXPECT_NE(error.why().find("eth1 10.0.0.5"), std::string::npos);  // what there is
  }
}

TEST(Interfaces, LoopbackIsTheLastResortAndSaysSo) {
  const auto choice = choose_addresses({kAll[0], kAll[1]}, "");
  EXPECT_EQ(choice.addresses, Addresses{"127.0.0.1"});
  EXPECT_NE(choice.reason.find("loopback"), std::string::npos);
}

TEST(Interfaces, NoMoreAreToldThanOthersTake) {
  std::vector<InterfaceAddress> many;
  for (int i = 0; i < 40; ++i)
    many.push_back({"lo", "127.0.0." + std::to_string(i + 1), true, true});
  const auto all = choose_addresses(many, ""), asked = choose_addresses(many, "lo");
  EXPECT_EQ(all.addresses.size(), 8u);
  EXPECT_EQ(asked.addresses, all.addresses);
}

TEST(Addresses, AreReadAsTheyAreWritten) {
  EXPECT_EQ(format_address("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(format_address("fe80::1%lo", 80), "[fe80::1%lo]:80");
  EXPECT_EQ(parse_address("10.0.0.1:80")->storage.ss_family, AF_INET);
  EXPECT_EQ(parse_address("[fe80::1%lo]:80")->storage.ss_family, AF_INET6);
  for (const char* wrong : {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:99999",
                            "10.0.0.1:8x", "host:80", "[::1:80", "::1:80", "[]:1"})
    EXPECT_FALSE(parse_address(wrong)) << wrong;
}

}  // namespace
}  // namespace torch::comms::base
