#include <torchcomms/options.hpp>

#include <gtest/gtest.h>

#include <torchcomms/base/error.hpp>

#include "core/variable.hpp"

namespace torch::comms {
namespace {

template <class Body>
Errc code_of(const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    return error.code();
  }
  ADD_FAILURE() << "no CommError";
  return Errc::kInternal;
}

TEST(CommOptions, DefaultsComeFromTheEnvironmentEachTime) {
  EXPECT_EQ(CommOptions().timeout, std::chrono::seconds(600));
  EXPECT_TRUE(CommOptions().abort_process_on_timeout_or_error);
  const Variable seconds("TORCHCOMM_TIMEOUT_SECONDS", " 1.5 ");
  const Variable abort("TORCHCOMM_ABORT_ON_ERROR", "No");
  EXPECT_EQ(CommOptions().timeout, std::chrono::milliseconds(1500));
  EXPECT_FALSE(CommOptions().abort_process_on_timeout_or_error);
}

TEST(CommOptions, ABadVariableIsNamed) {
  for (const char* text : {"-1", "abc", "0", "30s", "1e300"}) {
    const Variable seconds("TORCHCOMM_TIMEOUT_SECONDS", text);
    try {
      CommOptions();
      FAIL() << text;
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("TORCHCOMM_TIMEOUT_SECONDS"), std::string::npos);
    }
  }
}

TEST(CommOptions, EqualityLooksAtAbortTimeoutAndHints) {
  CommOptions a, b;
  b.name = "other";
  EXPECT_TRUE(a == b);
  b.hints["k"] = "v";
  EXPECT_FALSE(a == b);
}

TEST(Hints, AreTypedWhenTheyAreRead) {
  CommOptions options;
  options.hints = {{"yes", "True"},
                   {"bad", "maybe"},
                   {"n", "12"},
                   {"neg", "-1"},
                   {"big", "99999999999999999999999"},
                   {"text", "x"}};
  EXPECT_TRUE(options.getHint<bool>("yes", false));
  EXPECT_TRUE(options.getHint<bool>("absent", true));
  EXPECT_EQ(options.getHint<size_t>("n", 0), 12u);
  EXPECT_EQ(options.getHint<std::string>("text", ""), "x");
  EXPECT_EQ(code_of([&] { options.getHint<bool>("bad", false); }), Errc::kInvalidArgument);
  EXPECT_EQ(code_of([&] { options.getHint<size_t>("neg", 0); }), Errc::kInvalidArgument);
  EXPECT_EQ(code_of([&] { options.getHint<size_t>("text", 0); }), Errc::kInvalidArgument);
  EXPECT_EQ(code_of([&] { options.getHint<size_t>("big", 0); }), Errc::kOutOfRange);
}

TEST(ReduceOps, CompareByTypeAndFactor) {
  EXPECT_TRUE(ReduceOp(RedOpType::SUM) == ReduceOp::SUM);
  EXPECT_FALSE(ReduceOp::MIN == ReduceOp::MAX);
  EXPECT_TRUE(ReduceOp::make_nccl_premul_sum(2.0) == ReduceOp::make_nccl_premul_sum(2.0));
  EXPECT_FALSE(ReduceOp::make_nccl_premul_sum(2.0) == ReduceOp::make_nccl_premul_sum(3.0));
  EXPECT_EQ(ReduceOp::SUM.hash(), ReduceOp(RedOpType::SUM).hash());
  EXPECT_EQ(ReduceOp::SUM.factor(), nullptr);
  EXPECT_EQ(code_of([] { ReduceOp op(RedOpType::PREMUL_SUM); }), Errc::kInvalidArgument);
}

TEST(Names, EveryOperationHasItsOwn) {
  for (int i = 0; i < kOpNameCount; ++i)
    for (int j = 0; j < i; ++j)
      EXPECT_NE(opToString(static_cast<OpName>(i)), opToString(static_cast<OpName>(j)));
  EXPECT_EQ(opToString(OpName::finalize), "finalize");
  EXPECT_EQ(opToString(OpName::batch_op_issue), "batch_op_issue");
}

}  // namespace
}  // namespace torch::comms
