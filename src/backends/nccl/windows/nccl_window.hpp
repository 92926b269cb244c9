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

// A window of the library (ncclCommWindowRegister). Its operations run on streams, also in
// captures, and do not block the host. Puts and signals run in the order of the communicator's
// operations. Waits run in an order of their own, so that calls after an asynchronous wait do not
// wait with it. Memory of peers is accessed by puts only.
//
// Registered memory comes from get_mem_allocator() or window_allocate(), because the library can
// share only that with peers. A put may read from any memory, but other memory is copied through a
// bounce window.
//
// The library counts a put as a signal, and has one count for all windows of a communicator. So
// each window has communicators of its own for signals (signal_communicators.hpp), and no rank
// waits for the signals of puts. A signal arrives after the puts before it because of the stream
// order: for the library a put is complete when the peer's memory has the data.
//
// Tensors of ranks may differ in size if every allocation has room for the largest one.
//
// Lifetime: a window that is destroyed while its tensor is registered stays registered until its
// communicator ends; so does a window that graphs hold operations of.
class NcclWindow final : public TorchCommWindow {
 public:
  explicit NcclWindow(std::shared_ptr<NcclApiBackend> comm);
  // Collective. Allocates new memory, filled with zeros, and registers it.
  void allocate(size_t size_bytes);

  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  std::shared_ptr<TorchCommWindow> clone() override;
  WorkPtr put(const at::Tensor& tensor, int dst_rank, size_t target_offset_nelems, bool async_op,
              const PutOptions& options) override;
  WorkPtr signal(int peer_rank, bool async_op, const SignalOptions& options) override;
  // Throws: CommError(kUnsupported) for a signal from this rank that it has not sent yet: no rank
  // could send it during the wait.
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
  // Runs `body`, which is collective. A rank that leaves it by an exception aborts the
  // communicator, because the peers would wait for it.
  template <class Body>
  void run_collectively(const NcclCall& now, LaunchQueue& queue, const Body& body) const;
  // Returns: the values of all ranks, by rank. Collective.
  // Blocks: the host, until all ranks have called it.
  template <class T>
  std::vector<T> gather(const T& own) const;
  Context context(std::string_view method) const;
  // Returns: the queue of the communicator.
  // Throws: CommError if the communicator's members have changed.
  LaunchQueue& require_queue(std::string_view method) const;
  // Enqueues a step in the order of the communicator's operations.
  template <class Body>
  WorkPtr enqueue_step(const NcclCall& now, const OperationOptions& options,
                       const at::Tensor* tensor, const Body& body);
  WorkPtr enqueue_empty_step(const NcclCall& now, const OperationOptions& options);
  // Returns: this rank's memory in the window.
  // Throws: CommError(kUnsupported) if `rank` is a peer.
  char* own_memory(std::string_view method, int rank) const;

  const std::shared_ptr<NcclApiBackend> comm_;
  std::weak_ptr<LaunchQueue> queue_;
  std::shared_ptr<RegisteredWindow> window_;
};

}  // namespace torch::comms::nccl
