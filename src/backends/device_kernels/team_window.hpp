#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <torchcomms/window.hpp>

#include "ctran/team/device_window.hpp"

namespace torch::comms {
class KernelBackend;
}

namespace torch::comms::ctran {

class TeamKernels;
class WindowHandle;

// A window of tensors on the device of a communicator that has kernels. Its operations run on
// streams and do not block the host. Puts and signals run in the order of the communicator's
// operations. Waits run in an order of their own, so that calls after an asynchronous wait do not
// wait with it. device_window.hpp says what the operations do. The memory is the window's own, from
// window_allocate(), or that of a tensor that peers can map.
//
// Lifetime: a window that is destroyed while its tensor is registered stays open until its
// communicator ends.
class TeamWindow final : public TorchCommWindow {
 public:
  static constexpr size_t kSlots = 256;
  // Returns the backend that has the kernels now. Throws CommError if there is none.
  using BackendLookup = std::function<std::shared_ptr<KernelBackend>(std::string_view method)>;

  TeamWindow(BackendLookup backend_lookup, at::Device device, size_t slots = kSlots);
  ~TeamWindow() override;
  // Collective. Allocates new memory, filled with zeros, and registers it.
  void allocate(size_t size_bytes);

  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  std::shared_ptr<TorchCommWindow> clone() override;
  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override;
  WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options) override;
  WorkPtr wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) override;
  at::Tensor map_remote_tensor(int rank) override;
  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) override;

  WorkPtr signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                      const SignalOptions& options) override;
  WorkPtr wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                    const WaitSignalOptions& options) override;
  at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes, at::ScalarType dtype,
                               int64_t offset_nelems) override;

  // Local call. The counts of later calls are ignored.
  int64_t get_device_window(int signal_count, int counter_count, int barrier_count) override;
  int64_t register_local_buffer(const at::Tensor& tensor) override;
  void deregister_local_buffer(int64_t handle) override;
  int64_t get_nvlink_address(int peer, uint64_t offset_bytes) override;
  int64_t get_multimem_address(uint64_t offset_bytes) override;

 private:
  using RankMemory = DeviceWindow::RankMemory;
  // `local_error`: why this rank has no tensor; else "".
  void open(std::string_view method, const at::Tensor& tensor, bool owning,
            std::string local_error);
  bool is_stale(const KernelBackend& comm) const;
  // Returns: the backend, for one call of a method.
  // Throws: CommError, also if the members have changed.
  std::shared_ptr<KernelBackend> require_backend(std::string_view method) const;
  // Throws: CommError(kInvalidArgument) if get_device_window() was not called before.
  WindowHandle& require_handle(std::string_view method, const KernelBackend& comm) const;
  const RankMemory& rank_memory(int rank) const { return window_->rank_memory(rank); }
  at::Tensor view(int rank, uint64_t offset_bytes, at::IntArrayRef sizes,
                  at::ScalarType dtype) const;

  const BackendLookup backend_lookup_;
  const size_t slots_;
  std::weak_ptr<const TeamKernels> opened_by_;
  std::shared_ptr<const DeviceWindow> window_;
  // The handle of window_ for users' kernels, and the source buffers of their puts.
  std::unique_ptr<WindowHandle> handle_;
  std::map<int64_t, c10::Storage> buffers_;
};

}  // namespace torch::comms::ctran
