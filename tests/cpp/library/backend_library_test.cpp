// Backends in shared libraries, found through TORCHCOMMS_BACKEND_LIB_PATH_<NAME>.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>
#include <torchcomms/factory.hpp>

namespace torch::comms {
namespace {

constexpr const char* kVariable = "TORCHCOMMS_BACKEND_LIB_PATH_FAKE_TEST";

std::string library(const char* kind) {
  return std::string(TC_TEST_LIBRARY_DIR) + "/libfake_test_" + kind + ".so";
}

std::string error_text(const std::string& path) {
  ::setenv(kVariable, path.c_str(), 1);
  try {
    new_comm("fake_test", at::kCPU, "x");
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), Errc::kBackendUnavailable);
    return error.what();
  }
  ADD_FAILURE() << "no CommError for " << path;
  return {};
}

// One test in this order: a library that was loaded once is remembered under its name.
TEST(BackendLibrary, EachWayToBeWrongIsNamedAndARightOneWorks) {
  ::unsetenv(kVariable);
  EXPECT_THROW(new_comm("fake_test", at::kCPU, "x"), CommError);
  EXPECT_EQ(backend_library_variable("fake_test"), kVariable);

  EXPECT_NE(error_text("/nonexistent/lib.so").find("cannot be loaded"), std::string::npos);
  EXPECT_NE(error_text(library("no_symbol")).find("create_dynamic_loader_fake_test"),
            std::string::npos);
  EXPECT_NE(error_text(library("null_pointer")).find("null function pointer"), std::string::npos);
  const auto version = error_text(library("wrong_version"));
  EXPECT_NE(version.find("tc0+torch1.0"), std::string::npos) << version;
  EXPECT_NE(version.find(TORCHCOMM_BACKEND_ABI_VERSION), std::string::npos) << version;

  ::setenv(kVariable, library("right").c_str(), 1);
  const auto comm = new_comm("fake_test", at::kCPU, "x");
  EXPECT_EQ(comm->getBackend(), "fake_test");
  EXPECT_EQ(comm->getBackendImpl()->getBackendName(), "fake");
  comm->barrier(false);
  comm->finalize();
  ::unsetenv(kVariable);
  EXPECT_NO_THROW(new_comm("fake_test", at::kCPU, "again")) << "loaded once per name";
}

}  // namespace
}  // namespace torch::comms
