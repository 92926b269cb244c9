#pragma once

#include <torchcomms/window.hpp>

namespace torch::comms {

// The window of the fake backend. Operations complete at once and move no data; the memory of every
// rank is memory of this process. Bounds are checked, for dry runs.
class FakeWindow final : public TorchCommWindow {
 public:
  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  std::shared_ptr<TorchCommWindow> clone() override;
  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override;
  WorkPtr signal(int, bool, const SignalOptions&) override { return completedWork(); }
  WorkPtr wait_signal(int, bool, const WaitSignalOptions&) override { return completedWork(); }
  at::Tensor map_remote_tensor(int) override { return registered_; }
  std::shared_ptr<TorchCommWindowAttr> get_attr(int) override;

  WorkPtr signal_slot(size_t, uint64_t, int, bool, const SignalOptions&) override {
    return completedWork();
  }
  WorkPtr wait_slot(size_t, uint64_t, SignalCmpOp, bool, const WaitSignalOptions&) override {
    return completedWork();
  }
  at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes, at::ScalarType dtype,
                               int64_t offset_nelems) override;

 private:
  at::Tensor registered_;
};

}  // namespace torch::comms
