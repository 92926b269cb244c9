#include "bootstrap/hostlist.hpp"

#include <gtest/gtest.h>

#include <random>

#include <torchcomms/base/error.hpp>

namespace torch::comms::bootstrap {
namespace {

using Hosts = std::vector<std::string>;

CommError error_of(const std::string& text) {
  try {
    expand_hostlist(text);
  } catch (const CommError& e) {
    return e;
  }
  ADD_FAILURE() << "'" << text.substr(0, 100) << "' was accepted";
  return CommError(Errc::kInternal, "");
}

TEST(Hostlist, ExpandsWhatSlurmWrites) {
  for (const auto& [text, hosts] : std::vector<std::pair<std::string, Hosts>>{
           {"gpu5", {"gpu5"}},
           {"a,b,c", {"a", "b", "c"}},
           {"n[01-03,7]-x,gpu5", {"n01-x", "n02-x", "n03-x", "n7-x", "gpu5"}},
           {"n[8-11]", {"n8", "n9", "n10", "n11"}},
           {"n[098-101]", {"n098", "n099", "n100", "n101"}},
           {"n[5]", {"n5"}},
           {"n[3-3]", {"n3"}},
           {"[1-2]", {"1", "2"}},
           {"r[1-2]c[3-4]", {"r1c3", "r1c4", "r2c3", "r2c4"}},
           {"host.example.org,under_score", {"host.example.org", "under_score"}},
       })
    EXPECT_EQ(expand_hostlist(text), hosts) << text;
}

TEST(Hostlist, RefusesWhatItDoesNotUnderstandAndSaysWhere) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "a host name is missing at character 1"},
           {"a,", "a host name is missing at character 3"},
           {"a,,b", "a host name is missing at character 3"},
           {"n[", "a number is missing at character 3"},
           {"n[]", "a number is missing"},
           {"n[1", "']' is missing"},
           {"n[1-]", "a number is missing"},
           {"n[1,]", "a number is missing"},
           {"n[1-2", "']' is missing"},
           {"n[[1]]", "a number is missing"},
           {"n]", "']' cannot be in a host name"},
           {"n[3-1]", "runs backwards"},
           {"n[1234567890]", "more than 9 digits"},
           {"a b", "' ' cannot be in a host name"},
           {"n[1-2];rm", "';' cannot be in a host name"},
       }) {
    const auto error = error_of(text);
    EXPECT_EQ(error.code(), Errc::kInvalidArgument) << text;
    EXPECT_NE(error.why().find(why), std::string::npos) << error.why();
  }
}

TEST(Hostlist, CapsTheNumberOfHosts) {
  EXPECT_EQ(expand_hostlist("n[1-65536]").size(), 65536u);
  for (const char* text :
       {"n[1-65537]", "n[0-999999999]", "n[1-300]x[1-300]", "n[1-60000],m[1-60000]",
        "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"})
    EXPECT_EQ(error_of(text).code(), Errc::kTooLarge) << text;
  EXPECT_EQ(error_of(std::string((1 << 20) + 1, 'a')).code(), Errc::kTooLarge);
}

TEST(Hostlist, ArbitraryTextIsRefusedOrExpandedButNeverMore) {
  std::mt19937 random(7);
  const std::string letters = "an0159[],-. ";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 12, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    try {
      for (const auto& host : expand_hostlist(text)) EXPECT_FALSE(host.empty()) << text;
    } catch (const CommError& e) {
      EXPECT_TRUE(e.code() == Errc::kInvalidArgument || e.code() == Errc::kTooLarge) << text;
    }
  }
}

}  // namespace
}  // namespace torch::comms::bootstrap
