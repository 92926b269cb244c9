#include "base/text/utf8.hpp"

#include <gtest/gtest.h>

#include <array>

namespace torch::comms::base {
namespace {

TEST(Utf8, CharactersStay) {
  for (const std::string text : {"", "plain", "\xc3\xbc", "\xe2\x82\xac", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(replace_invalid_utf8(text), text);
}

TEST(Utf8, WhatIsNoneIsReplacedByteByByte) {
  const std::string one = "\xef\xbf\xbd";
  EXPECT_EQ(replace_invalid_utf8("cut \xc3"), "cut " + one);
  EXPECT_EQ(replace_invalid_utf8("\xe2\x82"), one + one);
  EXPECT_EQ(replace_invalid_utf8("\xbcnext"), one + "next");
  EXPECT_EQ(replace_invalid_utf8("\xc3next"), one + "next");
  EXPECT_EQ(replace_invalid_utf8("\xff"), one);
  EXPECT_EQ(replace_invalid_utf8("\xc0\x80"), one + one) << "a longer form";
  EXPECT_EQ(replace_invalid_utf8("\xe0\x9f\xbf"), one + one + one) << "a longer form";
  EXPECT_EQ(replace_invalid_utf8("\xf0\x8f\xbf\xbf"), one + one + one + one) << "a longer form";
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), one + one + one) << "a surrogate";
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), one + one + one + one) << "over U+10FFFF";
}

TEST(Utf8, ATextIsCutBetweenCharacters) {
  const std::string text = "a\xc3\xbc\xe2\x82\xac\xf0\x90\x80\x80";  // of 1, 2, 3 and 4 bytes
  const std::array<size_t, 12> ends = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t most = 0; most < ends.size(); ++most)
    EXPECT_EQ(utf8_prefix(text, most), text.substr(0, ends[most])) << most;
  const std::array<size_t, 12> lasts = {0, 0, 0, 0, 4, 4, 4, 7, 7, 9, 10, 10};
  for (size_t most = 0; most < lasts.size(); ++most)
    EXPECT_EQ(utf8_suffix(text, most), text.substr(text.size() - lasts[most])) << most;
}

TEST(Utf8, WhatIsNoneIsCutAnywhere) {
  const std::string text(10, '\xbc');
  EXPECT_EQ(utf8_prefix(text, 8).size(), 8u);
  EXPECT_EQ(utf8_prefix("ab\xff\xff", 3), "ab\xff");
  EXPECT_LE(utf8_suffix(text, 8).size(), 8u);
  EXPECT_EQ(utf8_suffix("\xbc", 0), "");
}

}  // namespace
}  // namespace torch::comms::base
