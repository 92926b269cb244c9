#include "hooks/utf8.hpp"

#include <gtest/gtest.h>

namespace torch::comms::fr {
namespace {

TEST(Utf8, CharactersStay) {
  for (const std::string text : {"", "plain", "\xc3\xbc", "\xe2\x82\xac", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(valid_utf8(text), text);
}

TEST(Utf8, WhatIsNoneIsReplacedByteByByte) {
  const std::string one = "\xef\xbf\xbd";
  EXPECT_EQ(valid_utf8("cut \xc3"), "cut " + one);
  EXPECT_EQ(valid_utf8("\xe2\x82"), one + one);
  EXPECT_EQ(valid_utf8("\xbcnext"), one + "next");
  EXPECT_EQ(valid_utf8("\xc3next"), one + "next");
  EXPECT_EQ(valid_utf8("\xff"), one);
  EXPECT_EQ(valid_utf8("\xc0\x80"), one + one) << "a longer form";
  EXPECT_EQ(valid_utf8("\xe0\x9f\xbf"), one + one + one) << "a longer form";
  EXPECT_EQ(valid_utf8("\xf0\x8f\xbf\xbf"), one + one + one + one) << "a longer form";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), one + one + one) << "a surrogate";
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), one + one + one + one) << "over U+10FFFF";
}

}  // namespace
}  // namespace torch::comms::fr
