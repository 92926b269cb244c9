#include "base/os/loaded_library.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace torch::comms::base {
namespace {

TEST(LoadedLibraries, AreFoundByTheBeginningOfTheirFileName) {
  const auto found = loaded_libraries("libc.so");
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found[0].find("/libc.so"), std::string::npos) << found[0];
  EXPECT_TRUE(loaded_libraries("libtc-not-there.so").empty());
}

TEST(OpenLibrary, SaysWhyNot) {
  std::string why;
  EXPECT_EQ(open_library("libtc-not-there.so.1", why), nullptr);
  EXPECT_NE(why.find("libtc-not-there.so.1"), std::string::npos) << why;
  EXPECT_NE(open_library("libc.so.6", why), nullptr);
}

TEST(LibraryOf, NamesTheFileOfAFunction) {
  EXPECT_NE(path_of_library(reinterpret_cast<const void*>(&std::atoi)), "");
  EXPECT_EQ(path_of_library(nullptr), "");
}

}  // namespace
}  // namespace torch::comms::base
