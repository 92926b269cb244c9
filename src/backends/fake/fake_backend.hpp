#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/backend.hpp>

namespace torch::comms {

// A backend for unit tests and dry runs. It moves no data, completes every operation at once,
// accepts tensors of any device, and records the last calls. Sizes and layouts are not checked. The
// communicator is rank 0 of 1, unless the hints `fake::rank` and `fake::size` set other values.
//
// With enable_reconfigure the communicator has no members until reconfigure(). reconfigure()
// contacts no peer: this rank becomes rank 0, and the size is the number of handles, whose text is
// ignored. The backend has no init handle of its own.
//
// Threads: the test aids may be called from the thread that uses the communicator.
class TC_API TorchCommFake : public TorchCommBackend {
 public:
  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  void finalize() override {}

  int getRank() const override { return is_connected_ ? rank_ : -1; }
  int getSize() const override { return is_connected_ ? size_ : -1; }
  bool isInitialized() const override { return is_connected_; }
  std::string_view getBackendName() const override { return "fake"; }
  std::string_view getCommName() const override { return name_; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }
  Capabilities capabilities() const override;

  WorkPtr send(const at::Tensor&, int, bool, const SendOptions&) override;
  WorkPtr recv(at::Tensor&, int, bool, const RecvOptions&) override;
  WorkPtr batch_op_issue(const std::vector<P2POp>&, bool, const BatchP2POptions&) override;
  WorkPtr broadcast(at::Tensor&, int, bool, const BroadcastOptions&) override;
  WorkPtr all_reduce(at::Tensor&, const ReduceOp&, bool, const AllReduceOptions&) override;
  WorkPtr reduce(at::Tensor&, int, const ReduceOp&, bool, const ReduceOptions&) override;
  WorkPtr all_gather(const Tensors&, const at::Tensor&, bool, const AllGatherOptions&) override;
  WorkPtr all_gather_v(const Tensors&, const at::Tensor&, bool, const AllGatherOptions&) override;
  WorkPtr all_gather_single(at::Tensor&, const at::Tensor&, bool,
                            const AllGatherSingleOptions&) override;
  WorkPtr reduce_scatter(at::Tensor&, const Tensors&, const ReduceOp&, bool,
                         const ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_v(at::Tensor&, const Tensors&, const ReduceOp&, bool,
                           const ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_single(at::Tensor&, const at::Tensor&, const ReduceOp&, bool,
                                const ReduceScatterSingleOptions&) override;
  WorkPtr all_to_all_single(at::Tensor&, const at::Tensor&, bool,
                            const AllToAllSingleOptions&) override;
  WorkPtr all_to_all_v_single(at::Tensor&, const at::Tensor&, const Splits&, const Splits&, bool,
                              const AllToAllvSingleOptions&) override;
  WorkPtr all_to_all(const Tensors&, const Tensors&, bool, const AllToAllOptions&) override;
  WorkPtr barrier(bool, const BarrierOptions&) override;
  WorkPtr scatter(at::Tensor&, const Tensors&, int, bool, const ScatterOptions&) override;
  WorkPtr gather(const Tensors&, const at::Tensor&, int, bool, const GatherOptions&) override;
  WorkPtr gather_single(at::Tensor&, const at::Tensor&, int, bool,
                        const GatherSingleOptions&) override;

  // Returns: a new fake communicator in every case, also for an empty list.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>&, const std::string& name,
                                          const CommOptions& options) override;

  // Windows use memory of this process. They move no data either.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;

  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setHints(const Hints& hints) override { hints_ = hints; }
  WorkPtr reconfigure(const ReconfigureOptions& options) override;
  void tensor_register(const at::Tensor&) override { ++registered_tensors_; }
  void tensor_deregister(const at::Tensor&) override;
  void abort() override;
  bool isAbortSupported() const override { return abort_enabled_; }
  bool isAborted() const override { return aborted_; }

  // Test aids: they configure the backend and read what it has recorded.
  struct FakeCall {
    OpName op;
    int root_or_peer;
    int64_t elements;
  };
  static constexpr size_t kMaxRecordedCalls = 1024;
  std::vector<FakeCall> recordedCalls() const;  // the last kMaxRecordedCalls, oldest first
  void setSize(int size) { size_ = size; }
  void enableAbort() { abort_enabled_ = true; }
  void triggerAbort();
  // Makes later calls of reconfigure() return a failed work and leave no members.
  void setReconfigureFailure(bool fails = true) { should_fail_reconfigure_ = fails; }
  bool is_tensor_registered() const { return registered_tensors_ > 0; }
  std::chrono::milliseconds getTimeoutForTest() const { return timeout_; }
  const Hints& getHintsForTest() const { return hints_; }
  const std::optional<SendOptions>& getLastSendOptionsForTest() const { return last_send_; }
  int getLastSendDstForTest() const { return last_send_dst_; }
  const std::optional<RecvOptions>& getLastRecvOptionsForTest() const { return last_recv_; }
  int getLastRecvSrcForTest() const { return last_recv_src_; }

 private:
  WorkPtr record_call(OpName op, int root_or_peer, int64_t elements);

  int rank_ = 0;
  int size_ = 1;
  at::Device device_{at::kCPU};
  std::string name_;
  CommOptions options_;
  std::chrono::milliseconds timeout_{0};
  Hints hints_;
  bool is_connected_ = true;
  bool should_fail_reconfigure_ = false;
  bool abort_enabled_ = false;
  bool aborted_ = false;
  int registered_tensors_ = 0;
  std::optional<SendOptions> last_send_;
  std::optional<RecvOptions> last_recv_;
  int last_send_dst_ = -1;
  int last_recv_src_ = -1;
  std::vector<FakeCall> calls_;  // a ring buffer when it holds kMaxRecordedCalls
  size_t oldest_ = 0;
};

}  // namespace torch::comms
