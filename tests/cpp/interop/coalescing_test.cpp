// Coalescing, and what becomes of its messages where its end does not come.
#include "interop/coalescing.hpp"

#include <string>

#include "interop/backend_of_works.hpp"

namespace torch::comms {
namespace {

constexpr auto npos = std::string::npos;

TEST(Regions, TheWorksOfTheirMessagesWaitForTheBatch) {
  Group group;
  group.calls->startCoalescing();
  const auto sent = group.send(), received = group.recv();
  EXPECT_TRUE(sent->isCompleted()) << "as it is for whoever asks before the end";
  const auto all = group.calls->endCoalescing();
  EXPECT_EQ(group.backend->batched, 2U);
  sent->wait();
  const auto& batch = group.backend->batches.at(0);
  EXPECT_EQ(batch->waits, 1);
  received->wait();
  EXPECT_EQ(batch->waits, 2);
  EXPECT_FALSE(all->isCompleted());
  batch->setStatus(WorkStatus::COMPLETED);
  EXPECT_TRUE(all->isSuccess());
}

TEST(Regions, AFailedBatchIsEveryMessagesError) {
  Group group;
  group.calls->startCoalescing();
  const auto sent = group.send();
  group.calls->endCoalescing();
  group.backend->batches.at(0)->setStatus(
      WorkStatus::TIMEDOUT, std::make_exception_ptr(CommError(Errc::kTimeout, "a test's", {})));
  EXPECT_NE(refusal([&] { sent->wait(); }).find("a test's"), npos);
}

// Which the program does not catch inside, as torch's batch_isend_irecv().
TEST(Regions, ACallThatThrowsGivesThemUp) {
  Group group;
  group.calls->startCoalescing();
  const auto sent = group.send();
  EXPECT_NE(refusal([&] { group.calls->recvAnysource(group.tensors, 0); }), "");
  EXPECT_NE(refusal([&] { sent->wait(); }).find("(1 in all): recvAnySource failed"), npos);
  group.send()->wait();
  EXPECT_EQ(group.backend->messages, 1) << "a later message is one by itself";
  group.calls->startCoalescing();
  group.send();
  group.calls->endCoalescing();
  EXPECT_EQ(group.backend->batched, 1U);
}

TEST(Regions, TheEndTellsOfMessagesThatWereGivenUp) {
  Group group;
  group.calls->startCoalescing();
  group.send();
  EXPECT_NE(refusal([&] { group.calls->recvAnysource(group.tensors, 0); }), "");
  EXPECT_NE(refusal([&] { group.calls->endCoalescing(); }).find("recvAnySource failed"), npos);
  EXPECT_TRUE(group.backend->batches.empty());
}

TEST(Regions, TheEndIsWellWhereNoMessageWasGivenUp) {
  Group group;
  group.calls->startCoalescing();
  EXPECT_NE(refusal([&] { group.calls->recvAnysource(group.tensors, 0); }), "");
  group.send();
  group.calls->endCoalescing()->wait();
  EXPECT_EQ(group.backend->messages, 1);
}

// Of others' exceptions nothing is known here: a wait before the end may be of a region that was
// left, which is said once.
TEST(Regions, MessagesAreCompleteBeforeTheEndAndWaitForTheirBatchAfterIt) {
  Group group;
  group.calls->startCoalescing();
  const auto sent = group.send();
  EXPECT_TRUE(sent->isCompleted());
  testing::internal::CaptureStderr();
  for (int again = 0; again < 2; ++again) sent->wait();
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("message was not sent"), npos) << told;
  EXPECT_EQ(told.find("message was not sent"), told.rfind("message was not sent")) << told;
  EXPECT_TRUE(group.backend->batches.empty());
  group.calls->endCoalescing();
  EXPECT_EQ(group.backend->batched, 1U);
  sent->wait();
}

TEST(Regions, ASecondStartGivesThemUpAndAThirdBegins) {
  Group group;
  group.calls->startCoalescing();
  const auto sent = group.send();
  EXPECT_NE(refusal([&] { group.calls->startCoalescing(); }).find("was not ended"), npos);
  EXPECT_NE(refusal([&] { sent->wait(); }).find("startCoalescing() was called"), npos);
  group.calls->startCoalescing();
  group.send();
  group.calls->endCoalescing();
  EXPECT_EQ(group.backend->batched, 1U);
}

TEST(Regions, TheEndOfTheirGroupGivesThemUp) {
  Group group;
  group.calls->startCoalescing();
  const auto sent = group.send();
  group.calls.reset();
  EXPECT_NE(refusal([&] { sent->wait(); }).find("process group was destroyed"), npos);
}

TEST(Regions, OneThatIsLeftKeepsNoTensorsOfCollectives) {
  Group group;
  group.calls->startCoalescing();
  const at::Tensor memory = at::ones({3});
  for (int call = 0; call < 3; ++call) {
    std::vector<at::Tensor> tensors{memory.view({3})};
    c10d::AllreduceOptions options;
    options.asyncOp = false;
    group.calls->allreduce(tensors, options)->wait();
  }
  EXPECT_EQ(memory.storage().use_count(), 1U);
}

}  // namespace
}  // namespace torch::comms
