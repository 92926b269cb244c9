#include "base/os/host.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace torch::comms::base {
namespace {

TEST(LoopbackIdentity, IsOneWordThatStaysTheSame) {
  const std::string here = loopback_identity();
  EXPECT_FALSE(here.empty());
  EXPECT_EQ(here.find(' '), std::string::npos) << here;
  EXPECT_EQ(loopback_identity(), here);
}

TEST(LoopbackIdentity, NamesTheHostWhereTheBootIsNotKnown) {
  constexpr int kNotAllowed = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr std::string_view kName = "tc-host";
    if (::unshare(CLONE_NEWNS | CLONE_NEWUTS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("/dev/null", "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) != 0 ||
        ::sethostname(kName.data(), kName.size()) != 0)
      ::_exit(kNotAllowed);
    ::_exit(boot_identity().empty() && loopback_identity().starts_with("tc-host/") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed)
    GTEST_SKIP() << "this process may have no mount namespace of its own";
  EXPECT_EQ(status, 0);
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
