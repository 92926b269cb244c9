#pragma once

#include <torchcomms/backend_wrapper.hpp>

#ifdef C10D_BACKEND_HAS_WINDOW
#include <torch/csrc/distributed/c10d/Window.hpp>

namespace torch::comms {

// Adapts a window of a communicator to c10d::Window. Default timeouts are those of `wrapper`, which
// created the window and is kept alive by it.
// Threads: as TorchCommWindow. Throws: as TorchCommWindow.
class WindowWrapper final : public c10d::Window {
 public:
  WindowWrapper(c10::intrusive_ptr<BackendWrapper> wrapper, std::shared_ptr<TorchCommWindow> window)
      : wrapper_(std::move(wrapper)), window_(std::move(window)) {}

  void tensor_register(const at::Tensor& tensor, bool owning) override {
    window_->tensor_register(tensor, owning);
  }
  void tensor_deregister() override { window_->tensor_deregister(); }
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr put(const at::Tensor& tensor, int64_t rank, int64_t offset_nelems, bool async_op,
              const c10d::PutOptions& options) override;
  WorkPtr signal(int64_t rank, bool async_op, const c10d::SignalOptions& options) override;
  WorkPtr wait_signal(int64_t rank, bool async_op, const c10d::WaitSignalOptions& options) override;
  at::Tensor map_remote_tensor(int64_t rank) override;
  c10d::WindowAttr get_attr(int64_t rank) override;

 private:
  template <class Ours, class Theirs>
  Ours translated(const Theirs& options) const {
    Ours ours;
    ours.timeout = wrapper_->limit(options.timeout);
    ours.hints = options.hints;
    return ours;
  }

  c10::intrusive_ptr<BackendWrapper> wrapper_;
  std::shared_ptr<TorchCommWindow> window_;
};

}  // namespace torch::comms
#endif
