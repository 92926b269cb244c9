#include "backends/gloo/gloo_call.hpp"

#include <gtest/gtest.h>

namespace torch::comms::gloo {
namespace {

CommError translated(std::errc code) {
  const GlooCall call{.op = OpName::barrier,
                      .comm = std::make_shared<GlooCommInfo>("world", 1, 2),
                      .timeout = std::chrono::seconds(1),
                      .has_own_timeout = false,
                      .async_op = false};
  return translate_error(std::make_exception_ptr(std::system_error(std::make_error_code(code))),
                         call);
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
