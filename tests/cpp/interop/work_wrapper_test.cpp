// What torch.distributed waits for, of works as a device has them.
#include <torchcomms/backend_wrapper.hpp>

#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/FakeGuardImpl.h>

#include "core/work/interruptible_call.hpp"
#include "interop/backend_of_works.hpp"

namespace torch::comms {
namespace {

TEST(Barriers, ASynchronousOneBlocksTheHostToo) {
  Group group;
  c10d::BarrierOptions options;
  options.asyncOp = false;
  group.calls->barrier(options)->wait();
  options.asyncOp = true;
  group.calls->barrier(options)->wait();
  EXPECT_EQ(group.backend->barriers.at(0)->synchronized, 1);
  EXPECT_EQ(group.backend->barriers.at(1)->waits, 1);
  EXPECT_EQ(group.backend->barriers.at(1)->synchronized, 0);
}

// A device whose streams and events do nothing, and memory of it that is none.
constexpr auto kDevice = c10::DeviceType::PrivateUse1;
C10_REGISTER_GUARD_IMPL(PrivateUse1, c10::impl::FakeGuardImpl<kDevice>)

std::vector<at::Tensor> on_device() {
  const c10::Storage memory(c10::Storage::use_byte_size_t(), 0,
                            c10::DataPtr(nullptr, c10::Device(kDevice, 0)));
  return {at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(memory), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<float>())};
}

c10::intrusive_ptr<WorkWrapper> wrapped(const DeviceWorkPtr& work) {
  return c10::make_intrusive<WorkWrapper>(std::vector<WorkPtr>{work}, on_device(),
                                          c10d::OpType::ALLREDUCE);
}

std::exception_ptr failure() {
  return std::make_exception_ptr(CommError(Errc::kPeerFailed, "a test's", {}));
}

TEST(Futures, OnADeviceTheyAreCompleteAtOnce) {
  const auto work = c10::make_intrusive<DeviceWork>();
  EXPECT_TRUE(wrapped(work)->getFuture()->completed());
  EXPECT_EQ(work->waits, 1);
}

TEST(Futures, OnADeviceAFailedOneHasTheErrorAndWaitersGoOn) {
  const auto work = c10::make_intrusive<DeviceWork>();
  work->setStatus(WorkStatus::ERROR, failure());
  const auto wrapper = wrapped(work);
  const auto future = wrapper->getFuture();
  ASSERT_TRUE(future->hasError());
  EXPECT_EQ(wrapper->getFuture(), future);
  EXPECT_NE(refusal([&] { wrapper->wait(); }).find("a test's"), std::string::npos);
}

// Its poll_once() is left by what is none of the operation's, as by Ctrl-C.
class InterruptedWork final : public TorchWork {
 public:
  void wait() override { throw std::runtime_error("Ctrl-C"); }
};

TEST(Waits, OneThatIsInterruptedWaitsForNothingElse) {
  const auto next = c10::make_intrusive<DeviceWork>();
  const auto wrapper = c10::make_intrusive<WorkWrapper>(
      std::vector<WorkPtr>{c10::make_intrusive<InterruptedWork>(), next},
      std::vector<at::Tensor>{at::ones({1})}, c10d::OpType::ALLREDUCE);
  wrapper->getFuture();  // which never comes
  EXPECT_THROW(wrapper->wait(), std::runtime_error);
  EXPECT_EQ(next->waits, 0);
}

TEST(Waits, ThatForTheFutureIsInterruptedToo) {
  const auto work = c10::make_intrusive<DeviceWork>();
  work->blocks = true;  // the future comes with the work's end
  const auto wrapper = wrapped(work);
  const auto future = wrapper->getFuture();
  set_interrupt_check([] { throw std::runtime_error("Ctrl-C"); });
  EXPECT_THROW(wrapper->wait(), std::runtime_error);
  set_interrupt_check({});
  work->setStatus(WorkStatus::COMPLETED);
  wrapper->wait();
  EXPECT_TRUE(future->completed());
}

// How often a failure has come to the program.
std::shared_ptr<int> count_met(TorchWork& work) {
  auto met = std::make_shared<int>(0);
  work.registerWorkMetHook([met] { ++*met; });
  return met;
}

TEST(Failures, WhoAsksHasMetThem) {
  const auto work = c10::make_intrusive<DeviceWork>();
  const auto met = count_met(*work);
  const auto wrapper = wrapped(work);
  EXPECT_FALSE(wrapper->isSuccess());
  EXPECT_FALSE(wrapper->exception());
  EXPECT_EQ(*met, 0) << "it has not failed yet";
  work->setStatus(WorkStatus::ERROR, failure());
  EXPECT_EQ(wrapper->standing(), "failed");
  EXPECT_EQ(*met, 0) << "for display alone";
  EXPECT_FALSE(wrapper->isSuccess());
  EXPECT_EQ(*met, 1);
  EXPECT_TRUE(wrapper->exception());
  EXPECT_EQ(*met, 2);
}

TEST(Failures, AFutureThatHasOneHasBroughtItToTheProgram) {
  for (const bool before : {true, false}) {
    const auto work = c10::make_intrusive<DeviceWork>();
    work->blocks = true;  // the future comes with the work's end
    const auto met = count_met(*work);
    const auto wrapper = wrapped(work);
    if (before) wrapper->getFuture();
    work->setStatus(WorkStatus::ERROR, failure());
    if (!before) wrapper->getFuture();
    EXPECT_EQ(*met, 1);
  }
}

TEST(Futures, OfAWorkWhoseWaitBlocksTheHostTheyComeWithItsEnd) {
  const auto work = c10::make_intrusive<DeviceWork>();
  work->blocks = true;
  const auto future = wrapped(work)->getFuture();
  EXPECT_EQ(work->waits, 0);
  EXPECT_FALSE(future->completed());
  work->setStatus(WorkStatus::COMPLETED);
  future->wait();
  EXPECT_FALSE(future->hasError());
}

}  // namespace
}  // namespace torch::comms
