#include "base/os/system_error.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/no_descriptors.hpp"
#include "base/os/file_size.hpp"
#include "base/os/handles.hpp"

namespace torch::comms::base {
namespace {

TEST(SystemError, ScarcityIsFoundInOtherLibrariesMessages) {
  EXPECT_EQ(resource_errno_in("open /tmp/store: Too many open files"), EMFILE);
  EXPECT_EQ(resource_errno_in("No space left on device"), ENOSPC);
  EXPECT_EQ(resource_errno_in("Connection reset by peer"), 0);
  EXPECT_EQ(resource_errno_in(""), 0);
}

TEST(SystemError, LackOfDescriptorsNamesTheLimit) {
  const auto error = system_error(EMFILE, "the store");
  EXPECT_EQ(error.code(), Errc::kResourceExhausted);
  EXPECT_NE(error.why().find("the store: Too many open files: no descriptor left"),
            std::string::npos)
      << error.why();
  EXPECT_NE(error.why().find("ulimit -n"), std::string::npos) << error.why();
}

TEST(SystemError, AFileThatIsTooLargeForTheLimitNamesItAndNoSignalComes) {
  base::in_child([] {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit small{65536, 65536};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    require_file_size(65536, "a file");
    std::string why;
    try {
      require_file_size(65537, "a file");
    } catch (const CommError& error) {
      EXPECT_EQ(error.code(), Errc::kResourceExhausted);
      why = error.why();
    }
    EXPECT_TRUE(
        why.starts_with("a file: File too large: a file of this process may have at most "
                        "65536 bytes, as ulimit -f says (64 blocks of 1024 bytes)"))
        << why;
  });
}

TEST(SystemError, OtherRefusalsAreOfTheSystem) {
  errno = EACCES;
  const auto error = system_error("open");
  EXPECT_EQ(error.code(), Errc::kSystem);
  EXPECT_EQ(error.why(), "open: Permission denied");
}

TEST(SystemError, DescriptorsThatCannotBeHadAreAnErrorBeforeTheyAreNeeded) {
  require_descriptors(8, "this test");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const FileDescriptor next(::eventfd(0, EFD_CLOEXEC));
  const rlimit few{static_cast<rlim_t>(next.get()) + 4, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string why;
  try {
    require_descriptors(8, "this test");
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), Errc::kResourceExhausted);
    why = error.why();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(why.find("this test needs 8 descriptors: Too many open files"), std::string::npos)
      << why;
}

}  // namespace
}  // namespace torch::comms::base
