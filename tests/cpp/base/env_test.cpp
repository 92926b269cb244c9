#include "base/os/env.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <set>

#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr const char* kName = "TORCHCOMM_TEST_VARIABLE";

// The variable holds `text` while this lives.
class Variable {
 public:
  explicit Variable(const char* text, const char* name = kName) : name_(name) {
    ::setenv(name, text, 1);
  }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

template <class Read>
std::string refusal(const char* text, Read read, const char* name = kName) {
  const Variable variable(text, name);
  try {
    read();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInvalidArgument);
    return e.why();
  }
  ADD_FAILURE() << "'" << text << "' was accepted";
  return {};
}

template <class T>
T value_of(const char* text, T fallback) {
  const Variable variable(text);
  return env_to_value<T>(kName, fallback);
}

TEST(StringToBool, TakesTheWordsOfTheContractInAnyCase) {
  for (const char* text : {"1", "true", "TRUE", "True", "yes", "Y", "y", " yes\n"})
    EXPECT_TRUE(string_to_bool(text)) << text;
  for (const char* text : {"0", "false", "FALSE", "no", "No", "n", "N", "\tno "})
    EXPECT_FALSE(string_to_bool(text)) << text;
}

TEST(StringToBool, RefusesEverythingElseByName) {
  for (const char* text : {"", "on", "off", "2", "-1", "tru", "truee", "1 0", "yes!"}) {
    try {
      string_to_bool(text);
      ADD_FAILURE() << text;
    } catch (const CommError& e) {
      EXPECT_EQ(e.code(), Errc::kInvalidArgument);
      EXPECT_NE(e.why().find("'" + std::string(text) + "'"), std::string::npos) << e.why();
    }
  }
}

TEST(EnvText, TrimsAndTakesEmptyForUnset) {
  EXPECT_EQ(base::env_text(kName), std::nullopt);
  for (const char* text : {"", " ", "\t\n"}) {
    const Variable variable(text);
    EXPECT_EQ(base::env_text(kName), std::nullopt);
    EXPECT_EQ(env_to_value<int>(kName, 7), 7);
    EXPECT_TRUE(env_to_value<bool>(kName, true));
  }
  const Variable variable(" a b\n");
  EXPECT_EQ(base::env_text(kName), "a b");
}

TEST(EnvToValue, ReadsEachTypeWhole) {
  EXPECT_EQ(value_of<int>("-12", 0), -12);
  EXPECT_EQ(value_of<uint64_t>("18446744073709551615", 0), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(value_of<double>("30.5", 0), 30.5);
  EXPECT_EQ(value_of<double>("1e3", 0), 1000.0);
  EXPECT_EQ(value_of<float>("0.25", 0), 0.25f);
  EXPECT_EQ(value_of<bool>("No", true), false);
  EXPECT_EQ(value_of<std::string>(" text ", ""), "text");
}

TEST(EnvToValue, UnsetGivesTheFallback) {
  EXPECT_EQ(env_to_value<int>(kName, 3), 3);
  EXPECT_EQ(env_to_value<std::string>(kName, "x"), "x");
}

TEST(EnvToValue, IsReadAtEachUse) {
  EXPECT_EQ(value_of<int>("1", 0), 1);
  EXPECT_EQ(value_of<int>("2", 0), 2);
  EXPECT_EQ(env_to_value<int>(kName, 0), 0);
}

TEST(EnvToValue, BadTextNamesVariableTextAndWhatIsAllowed) {
  for (const char* text : {"30.0", "12x", "x", "1 2", "2147483648", "--1"}) {
    const auto why = refusal(text, [] { env_to_value<int>(kName, 0); });
    EXPECT_NE(why.find(std::string(kName) + "='" + text + "'"), std::string::npos) << why;
    EXPECT_NE(why.find("expected a whole number"), std::string::npos) << why;
  }
  for (const char* text : {"-1", "18446744073709551616", "1.5"})
    refusal(text, [] { env_to_value<uint64_t>(kName, 0); });
  for (const char* text : {"one", "1.5.2", "1,5"})
    refusal(text, [] { env_to_value<double>(kName, 0); });
  EXPECT_NE(refusal("maybe", [] { env_to_value<bool>(kName, false); }).find("true, yes"),
            std::string::npos);
}

TEST(EnvSeconds, TakesDecimalsAndRefusesWhatIsNoLimit) {
  EXPECT_EQ(base::env_seconds(kName), std::nullopt);
  {
    const Variable variable("30.0");
    EXPECT_EQ(base::env_seconds(kName), 30s);
  }
  {
    const Variable variable("0.05");
    EXPECT_EQ(base::env_seconds(kName), 50ms);
  }
  for (const char* text : {"0.0005", "0.0001", "1e-300"}) {
    const Variable variable(text);
    EXPECT_EQ(base::env_seconds(kName), 1ms) << "0 means that there is no limit";
  }
  for (const char* text : {"0", "-1", "-0.5", "nan", "inf", "1e10", "30s", "ten"}) {
    const auto why = refusal(text, [] { base::env_seconds(kName); });
    EXPECT_NE(why.find("seconds > 0"), std::string::npos) << why;
  }
}

TEST(EnvInt, TakesWhatItsRowAllows) {
  constexpr const char* kCapacity = "TORCHCOMM_EVENTS_CAPACITY";
  EXPECT_EQ(base::env_int(kCapacity), 8192);
  {
    const Variable variable(" 4096 ", kCapacity);
    EXPECT_EQ(base::env_int(kCapacity), 4096);
  }
  for (const char* text : {"1", "-1", "4194305", "1_000", "8k", "9223372036854775808"})
    EXPECT_NE(refusal(
                  text, [] { base::env_int(kCapacity); }, kCapacity)
                  .find("expected a whole number from 2 to 4194304"),
              std::string::npos);
  constexpr const char* kEntries = "TORCHCOMM_FR_BUFFER_SIZE";
  EXPECT_TRUE(refusal(
                  "-1", [] { base::env_int(kEntries); }, kEntries)
                  .ends_with("expected a whole number from 0"));
}

TEST(Environment, EachTextIsReadAsByItsReader) {
  const auto check = [](const char* name) {
    for (const auto& row : base::environment())
      if (row.name == std::string(name)) return base::validate_env_var(row);
    ADD_FAILURE() << name;
  };
  const std::pair<const char*, const char*> wrong[] = {
      {"TORCHCOMM_TIMEOUT_SECONDS", "0"},        {"TORCHCOMM_TIMEOUT_SECONDS", "inf"},
      {"TORCHCOMM_EVENTS_CAPACITY", "1"},        {"TORCHCOMM_LOG_LEVEL", "warn"},
      {"TORCHCOMM_FR_BUFFER_SIZE", "-1"},        {"TORCHCOMM_ABORT_ON_ERROR", "on"},
      {"TORCHCOMM_HEALTH_CHECK_WAIT_MS", "soon"}};
  for (const auto& [name, text] : wrong) refusal(text, [&] { check(name); }, name);
  for (const auto& row : base::environment()) base::validate_env_var(row);
}

TEST(Environment, EveryRowIsCompleteAndNamedOnce) {
  std::set<std::string> names;
  const std::set<std::string> types = {"bool", "seconds", "int", "text", "path"};
  for (const auto& row : base::environment()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(types.contains(row.type)) << row.name << " has type " << row.type;
    EXPECT_TRUE(std::string(row.doc).ends_with(".")) << row.name;
    EXPECT_NE(row.default_text, nullptr) << row.name;
  }
  EXPECT_TRUE(names.contains("TORCHCOMM_TIMEOUT_SECONDS"));
}

}  // namespace
}  // namespace torch::comms
