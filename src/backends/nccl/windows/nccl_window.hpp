#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/window.hpp>

namespace torch::comms {
class NcclApiBackend;
}

namespace torch::comms::nccl {

class LaunchQueue;
struct NcclCall;
struct RegisteredWindow;

// A window of the library's own. Its operations go on streams, also in captures, and the host goes
// on: puts and signals in the order of the communicator's operations, waits in one of their own, so
// that what is called after an asynchronous wait does not wait with it. Other ranks' memory is
// reached by puts alone.
//
// Registered memory is of get_mem_allocator() or window_allocate(), so that the library can show it
// to others; what is put may be anywhere, but from elsewhere it is copied once more on the way.
//
// The library counts a put as a signal, and has one count for all windows of a communicator. So
// signals have communicators of their window's own (signal_ways.hpp), and nobody waits for those
// that come with puts. That a signal comes after the puts before it is the order of the stream: for
// the library a put is over when the peer's memory has it.
//
// The ranks' tensors may differ in size as far as the allocations that they are in have room for
// the largest. A window that is let go while its tensor is registered stays until its communicator
// ends; so does one that graphs have operations of.
class NcclWindow final : public TorchCommWindow {
 public:
  explicit NcclWindow(std::shared_ptr<NcclApiBackend> comm);
  // Collective: new memory, of zeros.
  void allocate(size_t size_bytes);

  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  std::shared_ptr<TorchCommWindow> clone() override;
  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override;
  WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options) override;
  // kUnsupported for a signal of this rank's own that it has not sent yet: nobody would send it
  // while this one waits.
  WorkPtr wait_signal(int peer_rank, bool async_op, const WaitSignalOptions& options) override;
  at::Tensor map_remote_tensor(int rank) override;
  std::shared_ptr<TorchCommWindowAttr> get_attr(int peer_rank) override;
  at::Tensor get_remote_tensor(int rank, const std::vector<int64_t>& sizes, at::ScalarType dtype,
                               int64_t offset_nelems) override;

 private:
  void open(std::string_view method, const at::Tensor& tensor, bool owning);
  std::shared_ptr<RegisteredWindow> open_memory(const NcclCall& now, const at::Tensor& tensor,
                                                bool owning);
  void add_signal_communicators(RegisteredWindow& window, const NcclCall& now);
  void add_bounce_window(const NcclCall& now);
  // Runs `body`, which all ranks do together: whoever leaves it before its end ends the
  // communicator, as the others would wait for it.
  template <class Body>
  void run_collectively(const NcclCall& now, LaunchQueue& lane, const Body& body) const;
  // What every rank has, by rank. Collective; blocks the host.
  template <class T>
  std::vector<T> gather(const T& own) const;
  Context context(std::string_view method) const;
  // Throws CommError where the members have changed.
  LaunchQueue& require_queue(std::string_view method) const;
  // A step in the order of the communicator's operations.
  template <class Body>
  WorkPtr enqueue_step(const NcclCall& now, const OperationOptions& options,
                       const at::Tensor* tensor, const Body& body);
  WorkPtr enqueue_empty_step(const NcclCall& now, const OperationOptions& options);
  // Throws kUnsupported for another rank's memory.
  char* own_memory(std::string_view method, int rank) const;

  const std::shared_ptr<NcclApiBackend> comm_;
  std::weak_ptr<LaunchQueue> queue_;
  std::shared_ptr<RegisteredWindow> window_;
};

}  // namespace torch::comms::nccl
