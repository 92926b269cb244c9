#include "base/os/host.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace torch::comms::base {
namespace {

TEST(LoopbackIdentity, IsOneWordThatStaysTheSame) {
  const std::string here = loopback_identity();
  EXPECT_FALSE(here.empty());
  EXPECT_EQ(here.find(' '), std::string::npos) << here;
  EXPECT_EQ(loopback_identity(), here);
}

TEST(InterfaceAddresses, ListLoopbackAndNoEmptyOnes) {
  const auto all = interface_addresses();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const auto& a) {
    return a.is_loopback && a.is_up && a.address == "127.0.0.1";
  }));
  for (const auto& a : all) {
    EXPECT_FALSE(a.interface.empty());
    EXPECT_FALSE(a.address.empty()) << a.interface;
  }
}

TEST(AddressText, IsEmptyForWhatIsNoAddress) {
  sockaddr_in address{};
  address.sin_family = AF_UNIX;
  EXPECT_EQ(format_address(reinterpret_cast<const sockaddr*>(&address)), "");
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, "10.0.0.5", &address.sin_addr);
  EXPECT_EQ(format_address(reinterpret_cast<const sockaddr*>(&address)), "10.0.0.5");
}

}  // namespace
}  // namespace torch::comms::base
