// What torch.distributed waits for, of works as a device has them.
#include <torchcomms/backend_wrapper.hpp>

#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/FakeGuardImpl.h>

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
