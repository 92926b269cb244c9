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

// How kernels and the CPU of this rank reach the memory of a peer.
enum class TorchCommWinAccessType : uint8_t {
  WIN_ACCESS_TYPE_UNIFIED = 0,   // loads and stores reach the memory of the peer
  WIN_ACCESS_TYPE_SEPARATE = 1,  // only a network reaches it
};

struct TorchCommWindowAttr {
  TorchCommWinAccessType access_type = TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
};

// The comparison of wait_slot(), of the older window API. The value of the slot is on the left.
enum class SignalCmpOp : uint8_t { EQ = 0, GE = 1, LE = 2 };

// Memory of this rank that peers read and write without a call of this rank (one-sided access).
// Backends with Capabilities::windows derive from it.
//
// A window of a TorchComm checks all arguments before anything is sent, holds the window of the
// backend, and keeps the communicator alive. An operation without its own timeout gets that of the
// communicator. Sizes and dtypes of the ranks may differ.
//
// Throws: CommError(kInvalidArgument) for a wrong argument, or if no tensor is registered.
// kOutOfRange for a transfer, slot or view that does not fit. kUnsupported for an operation that
// the backend does not have. kStaleGeneration after reconfigure(), until the tensor is deregistered
// and registered again. Failures of operations are as those of a communicator.
// Threads: the caller serializes the calls on one communicator and its windows.
class TC_API TorchCommWindow {
 public:
  virtual ~TorchCommWindow() = default;

  // Makes `tensor` this rank's memory of the window; all ranks must call it. `owning`: the window
  // keeps the tensor alive; otherwise the caller keeps it until tensor_deregister().
  // Throws: CommError: kInvalidArgument if a tensor is registered already, kInvalidArgument or
  // kUnsupported for memory that the backend cannot use.
  virtual void tensor_register(const at::Tensor& tensor, bool owning = true) = 0;
  // Removes the memory from the window; all ranks must call it. After it no rank writes to this
  // rank's memory any more. The window counts as deregistered even if the call throws. Tensors of
  // map_remote_tensor() become invalid. After reconfigure() the call is local.
  // Blocks: until all ranks have called it.
  virtual void tensor_deregister() = 0;
  // Creates a window of the same communicator, with a copy of the registered tensor. All ranks must
  // call it if a tensor is registered.
  virtual std::shared_ptr<TorchCommWindow> clone() = 0;

  // Copies `tensor` into the window memory of `dst_rank`, starting at `target_offset_nelems`
  // elements of the tensor's dtype. The work ends when the data is there.
  virtual WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems,
                      bool async_op, const PutOptions& options = {}) = 0;
  // Adds one signal for `peer_rank`. When the peer sees the signal, it also sees all data that this
  // rank has put to it before.
  virtual WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options = {}) = 0;
  // Waits for one signal of `peer_rank` and consumes it. On a GPU the stream waits, not the host.
  virtual WorkPtr wait_signal(int peer_rank, bool async_op,
                              const WaitSignalOptions& options = {}) = 0;
  // Returns: a tensor over the window memory of `rank`, with the dtype and shape that it has there.
  // For the own rank it is the registered tensor, or a view of its memory if the window does not
  // own it.
  // Throws: CommError(kUnsupported) for a peer if get_attr() returns SEPARATE.
  virtual at::Tensor map_remote_tensor(int rank) = 0;
  // Returns: how this rank reaches the window memory of `peer_rank`.
  virtual std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) = 0;

  // The older interface: besides its memory, each rank has slots, which are 64-bit words that are
  // zero at first. Each default throws CommError(kUnsupported).
  //
  // Stores `value` in a slot of `dst_rank`. When that rank sees the value, it also sees all data
  // that this rank has put to it before.
  virtual WorkPtr signal_slot(size_t slot, uint64_t value, int dst_rank, bool async_op,
                              const SignalOptions& options = {});
  // Waits until `compare` holds between the own slot and `value`. The slot keeps its value. A value
  // that is overwritten at once may be missed.
  virtual WorkPtr wait_slot(size_t slot, uint64_t value, SignalCmpOp compare, bool async_op,
                            const WaitSignalOptions& options = {});
  // Returns: a contiguous view of the window memory of `rank`, from `offset_nelems` elements of
  // `dtype` on. For peers the conditions of map_remote_tensor() apply.
  virtual at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes,
                                       at::ScalarType dtype, int64_t offset_nelems);

  // The interface for kernels on the device. Each default throws CommError(kUnsupported).
  //
  // Returns: the address of a device::TorchCommDeviceWindow (torchcomms/device/window.hpp) in the
  // memory of this rank's device. The first call creates it, and its counts apply until the tensor
  // is deregistered; -1 means the maximum. The call is local: kernels can put to peers that have
  // not called it.
  // Throws: CommError: kInvalidArgument for a count below -1, kOutOfRange for one over the maximum.
  virtual int64_t get_device_window(int signal_count = -1, int counter_count = -1,
                                    int barrier_count = 1);
  // Registers `tensor` as a source of puts by kernels and keeps its memory until
  // deregister_local_buffer() or tensor_deregister().
  // Returns: the address of a RegisteredBuffer in device memory.
  // Throws: CommError: kInvalidArgument if get_device_window() was not called before, or the tensor
  // is on another device; kResourceExhausted if the window has its maximum of buffers.
  virtual int64_t register_local_buffer(const at::Tensor& tensor);
  // Throws: CommError(kInvalidArgument) if `handle` is not such an address.
  virtual void deregister_local_buffer(int64_t handle);
  // The two functions above under their other names, which say that these addresses are handles.
  virtual int64_t register_local_buffer_handle(const at::Tensor& tensor) {
    return register_local_buffer(tensor);
  }
  virtual void deregister_local_buffer_handle(int64_t handle) { deregister_local_buffer(handle); }
  // Returns: the address at which kernels of this rank reach the memory of `peer`, `offset_bytes`
  // after its begin; 0 if they cannot reach it.
  // Throws: CommError(kOutOfRange) for an offset beyond the memory.
  virtual int64_t get_nvlink_address(int peer, uint64_t offset_bytes = 0);
  // Returns: the multicast address of the memory of all ranks, `offset_bytes` after its begin; 0 if
  // there is none.
  virtual int64_t get_multimem_address(uint64_t offset_bytes = 0);

  at::ScalarType getDtype() const { return dtype_; }
  const std::vector<int64_t>& getShape() const { return shape_; }
  at::Device getDevice() const { return device_; }
  size_t get_size() const { return size_bytes_; }
  std::optional<at::Tensor> get_tensor() const { return tensor_; }

 protected:
  std::optional<at::Tensor> tensor_;  // absent if the window does not own it
  at::ScalarType dtype_ = at::ScalarType::Float;
  std::vector<int64_t> shape_;
  at::Device device_{at::DeviceType::CUDA};
  size_t size_bytes_ = 0;
};

}  // namespace torch::comms
