#include "base/system_error.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace torch::comms::base {
namespace {

TEST(SystemError, ScarcityIsFoundInOtherLibrariesMessages) {
  EXPECT_EQ(scarcity_in("open /tmp/store: Too many open files"), EMFILE);
  EXPECT_EQ(scarcity_in("No space left on device"), ENOSPC);
  EXPECT_EQ(scarcity_in("Connection reset by peer"), 0);
  EXPECT_EQ(scarcity_in(""), 0);
}

TEST(SystemError, LackOfDescriptorsNamesTheLimit) {
  const auto error = system_error(EMFILE, "the store");
  EXPECT_EQ(error.code(), Errc::kResourceExhausted);
  EXPECT_NE(error.why().find("the store: Too many open files: no descriptor left"),
            std::string::npos)
      << error.why();
  EXPECT_NE(error.why().find("ulimit -n"), std::string::npos) << error.why();
}

TEST(SystemError, OtherRefusalsAreOfTheSystem) {
  errno = EACCES;
  const auto error = system_error("open");
  EXPECT_EQ(error.code(), Errc::kSystem);
  EXPECT_EQ(error.why(), "open: Permission denied");
}

}  // namespace
}  // namespace torch::comms::base
