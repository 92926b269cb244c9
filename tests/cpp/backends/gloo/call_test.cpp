#include "backends/gloo/call.hpp"

#include <gtest/gtest.h>

namespace torch::comms::gloo {
namespace {

CommError translated(std::errc code) {
  const Call call{.op = OpName::barrier,
                  .member = std::make_shared<Member>("world", 1, 2),
                  .limit = std::chrono::seconds(1),
                  .limit_is_own = false,
                  .async_op = false};
  return translate(std::make_exception_ptr(std::system_error(std::make_error_code(code))), call);
}

TEST(GlooCall, AThreadThatCannotBeStartedIsToldAsThat) {
  const auto error = translated(std::errc::resource_unavailable_try_again);
  EXPECT_EQ(error.code(), Errc::kResourceExhausted);
  EXPECT_NE(error.why().find("no thread could be started"), std::string::npos) << error.why();
  EXPECT_EQ(error.context().comm, "world");
}

TEST(GlooCall, OtherErrorsOfTheSystemAreToldInItsWords) {
  const auto error = translated(std::errc::permission_denied);
  EXPECT_EQ(error.code(), Errc::kSystem);
  EXPECT_NE(error.why().find("Permission denied"), std::string::npos) << error.why();
}

}  // namespace
}  // namespace torch::comms::gloo
