#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torchcomms/device/registered_buffer.hpp>
#include <torchcomms/options.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

using torchcomms::device::kMaxNicsPerGpu;
using torchcomms::device::RegisteredBuffer;

enum class TorchCommWinAccessType : uint8_t {
  WIN_ACCESS_TYPE_UNIFIED = 0,   // the peer's memory is reachable by load and store
  WIN_ACCESS_TYPE_SEPARATE = 1,  // over a network
};

struct TorchCommWindowAttr {
  TorchCommWinAccessType access_type = TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
};

// Comparison of the older window API: the slot's value on the left.
enum class SignalCmpOp : uint8_t { EQ = 0, GE = 1, LE = 2 };

// Memory of this rank that peers write without this rank's part in it (one-sided access). Backends
// with TransportCapabilities::windows derive from it.
//
// The windows that TorchComm gives out check arguments first (kInvalidArgument, kOutOfRange: before
// anything is sent), hold the backend's window, and keep the communicator alive. Without a time
// of its own an operation takes the communicator's.
//
// Threads: the caller serialises calls on one window. Failure: CommError, as for operations.
class TC_API TorchCommWindow {
 public:
  virtual ~TorchCommWindow() = default;

  // Collective. Makes `tensor` this rank's part; `owning` keeps it alive. Throws CommError when one
  // is registered already.
  virtual void tensor_register(const at::Tensor& tensor, bool owning = true) = 0;
  // Collective; includes a barrier. Mapped remote tensors become invalid.
  virtual void tensor_deregister() = 0;
  // Collective where a tensor is registered: a window of the same communicator, with a copy of it.
  virtual std::shared_ptr<TorchCommWindow> clone() = 0;

  // Copies `tensor` into `dst_rank`'s part at `target_offset_nelems` elements of the tensor's
  // dtype.
  virtual WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems,
                      bool async_op, const PutOptions& options = {}) = 0;
  // One more signal for `peer_rank`, which sees what was put to it before when it sees the signal.
  virtual WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options = {}) = 0;
  // Consumes one signal from `peer_rank`.
  virtual WorkPtr wait_signal(int peer_rank, bool async_op,
                              const WaitSignalOptions& options = {}) = 0;
  // The memory of `rank` itself, with the dtype and shape that it has there; of the own rank the
  // registered tensor. Throws CommError(kUnsupported) where get_attr() says SEPARATE.
  virtual at::Tensor map_remote_tensor(int rank) = 0;
  virtual std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) = 0;

  // The older interface: every rank has slots, 64-bit words that are zero at first, beside its
  // part. Each default throws CommError(kUnsupported). Stores `value` in a slot of `dst_rank`,
  // which sees what was put to it before when it sees it.
  virtual WorkPtr signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                              const SignalOptions& options = {});
  // Until `compare` holds between the own slot and `value`. Nothing is consumed.
  virtual WorkPtr wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                            const WaitSignalOptions& options = {});
  // A contiguous view of the memory of `rank` from `offset_nelems` elements of `dtype` on; of
  // others as map_remote_tensor().
  virtual at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes,
                                       at::ScalarType dtype, int64_t offset_nelems);

  // For kernels on the device. Each default throws CommError(kUnsupported).
  //
  // The address of a device::TorchCommDeviceWindow (torchcomms/device/window.hpp) in the memory of
  // this rank's device: made by the first call, whose counts hold, until the tensor is
  // deregistered. -1: as many as there can be. Local; what kernels put to peers needs no call
  // there.
  virtual int64_t get_device_window(int signal_count = -1, int counter_count = -1,
                                    int barrier_count = 1);
  // The address of a RegisteredBuffer there: a source of puts, whose memory is kept. After
  // get_device_window().
  virtual int64_t register_local_buffer(const at::Tensor& tensor);
  // Throws CommError(kInvalidArgument) for what is no such address.
  virtual void deregister_local_buffer(int64_t handle);
  // The same by the names that tell the address from other handles.
  virtual int64_t register_local_buffer_handle(const at::Tensor& tensor) {
    return register_local_buffer(tensor);
  }
  virtual void deregister_local_buffer_handle(int64_t handle) { deregister_local_buffer(handle); }
  // Where kernels here have the memory of `peer`, `offset_bytes` after its begin; 0 where they do
  // not reach it.
  virtual int64_t get_nvlink_address(int peer, uint64_t offset_bytes = 0);
  // The same of all ranks at once, by multicast.
  virtual int64_t get_multimem_address(uint64_t offset_bytes = 0);

  at::ScalarType getDtype() const { return dtype_; }
  const std::vector<int64_t>& getShape() const { return shape_; }
  at::Device getDevice() const { return device_; }
  size_t get_size() const { return size_bytes_; }
  std::optional<at::Tensor> get_tensor() const { return tensor_; }

 protected:
  std::optional<at::Tensor> tensor_;  // absent when not owning
  at::ScalarType dtype_ = at::ScalarType::Float;
  std::vector<int64_t> shape_;
  at::Device device_{at::DeviceType::CUDA};
  size_t size_bytes_ = 0;
};

}  // namespace torch::comms
