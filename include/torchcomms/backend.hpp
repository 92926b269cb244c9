#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/capabilities.hpp>
#include <torchcomms/hooks.hpp>
#include <torchcomms/options.hpp>
#include <torchcomms/window.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

// A communication library below a communicator. TorchComm has checked the arguments of each
// operation against capabilities() before, so a backend only moves data. Arguments of
// all_gather_p_*(), tensor_register() and tensor_deregister() are not checked before.
//
// Throws: a synchronous operation throws CommError; an asynchronous one keeps the error in its
// work.
// Threads: the caller serializes the calls on one backend, except abort() and isAborted(), which
// may run on any thread.
// Lifetime: vectors of tensors and options are borrowed for the call; asynchronous work keeps its
// own references.
class TC_API TorchCommBackend {
 public:
  virtual ~TorchCommBackend() = default;

  // Connects this rank. All ranks of the job must call it. With options.enable_reconfigure it
  // connects nothing, and reconfigure() does.
  // Throws: CommError within options.timeout.
  virtual void init(at::Device device, const std::string& name, const CommOptions& options) = 0;
  // Releases the connections of this rank. It is not a barrier. Backends over vendor libraries wait
  // for operations in flight. Then they wait for the peers, because the library closes its
  // communicator on all ranks together. The other backends wait for no peer.
  virtual void finalize() = 0;

  virtual int getRank() const = 0;
  virtual int getSize() const = 0;
  virtual std::string_view getBackendName() const = 0;
  virtual std::string_view getCommName() const = 0;
  virtual const CommOptions& getOptions() const = 0;
  virtual const at::Device& getDevice() const = 0;

  virtual Capabilities capabilities() const { return Capabilities::all(); }
  // Returns: the global ranks of the members in rank order; after reconfigure() 0 to size - 1;
  // empty while not connected. The default is 0 to getSize() - 1.
  virtual std::vector<int> getRanks() const;

  virtual WorkPtr send(const at::Tensor& tensor, int dst, bool async_op,
                       const SendOptions& options) = 0;
  virtual WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) = 0;
  virtual WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                 const BatchP2POptions& options) = 0;
  virtual WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                            const BroadcastOptions& options) = 0;
  virtual WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                             const AllReduceOptions& options) = 0;
  virtual WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                         const ReduceOptions& options) = 0;
  virtual WorkPtr all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                             const AllGatherOptions& options) = 0;
  virtual WorkPtr all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                               const AllGatherOptions& options) = 0;
  virtual WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                    const AllGatherSingleOptions& options) = 0;
  virtual WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                 bool async_op, const ReduceScatterOptions& options) = 0;
  virtual WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                   bool async_op, const ReduceScatterOptions& options) = 0;
  virtual WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                        const ReduceOp& op, bool async_op,
                                        const ReduceScatterSingleOptions& options) = 0;
  virtual WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                    const AllToAllSingleOptions& options) = 0;
  virtual WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                      const Splits& output_split_sizes,
                                      const Splits& input_split_sizes, bool async_op,
                                      const AllToAllvSingleOptions& options) = 0;
  virtual WorkPtr all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                             const AllToAllOptions& options) = 0;
  virtual WorkPtr barrier(bool async_op, const BarrierOptions& options) = 0;
  virtual WorkPtr scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                          const ScatterOptions& options) = 0;
  virtual WorkPtr gather(const Tensors& output, const at::Tensor& input, int root, bool async_op,
                         const GatherOptions& options) = 0;
  // The default calls gather() with N views of `output`, with the same hints and timeout.
  virtual WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                bool async_op, const GatherSingleOptions& options);

  // Creates the backend of a group of `ranks`, which the caller has checked. If
  // Capabilities::counts_splits is set, all ranks call it; otherwise at least those of `ranks`.
  // Returns: nullptr if `ranks` is empty, because this rank is in no group.
  virtual std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks,
                                                  const std::string& name,
                                                  const CommOptions& options) = 0;

  // The optional parts. Each default throws CommError(kUnsupported) "<method> not implemented by
  // backend '<name>'".
  virtual std::string_view getBackendVersion() const;
  virtual std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor);
  virtual std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                           size_t signal_size);
  using AllGatherPHandle = void*;
  virtual AllGatherPHandle all_gather_p_init(at::Tensor& output,
                                             const AllGatherPInitOptions& options);
  virtual WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                                    const AllGatherPExecOptions& options);
  virtual void all_gather_p_free(AllGatherPHandle handle);
  virtual void setTimeout(std::chrono::milliseconds timeout);
  virtual void setHints(const Hints& hints);
  virtual InitHandle getInitHandle() const;
  virtual WorkPtr reconfigure(const ReconfigureOptions& options);
  virtual void abort();
  virtual void tensor_register(const at::Tensor& tensor);
  virtual void tensor_deregister(const at::Tensor& tensor);
  virtual int64_t get_device_transport();

  virtual bool supportsWindow() const { return capabilities().windows; }
  virtual bool supportsReconfigure() const { return capabilities().reconfigure; }
  virtual bool isAbortSupported() const { return capabilities().abort; }
  virtual bool isAborted() const { return false; }
  virtual bool isInitialized() const { return true; }

  // The library calls announceAbort() before it terminates the process because this communicator
  // has failed. It runs the abort hooks; the default runs them on each call.
  // Threads: any.
  virtual void announceAbort() noexcept { runAbortHooks(); }
  virtual void registerAbortHook(int64_t id, AbortHook hook);
  virtual void unregisterAbortHook(int64_t id);
  virtual void registerGraphReplayHook(int64_t id, GraphReplayHook hook);
  virtual void unregisterGraphReplayHook(int64_t id);

  // Returns: the backend that runs an operation on tensors of this device, or an operation without
  // tensors if the communicator is on this device. Null: this backend runs it, for tensors on a GPU
  // on copies in host memory. The communicator calls onDevice() before each operation, and only if
  // capabilities() include staging. All ranks must give the same answer.
  struct OnDevice {
    OpName op;
    const ReduceOp* reduction;  // no reduction: null
    at::ScalarType dtype;       // of the reduced tensor
    const Hints* hints;         // of the call; null if there are none
  };
  virtual TorchCommBackend* onDevice(const at::Device&, const OnDevice&) { return nullptr; }

  // Returns: how long each phase of init() took, for describe(); empty if the backend does not
  // measure.
  struct InitPhase {
    std::string name;
    double milliseconds;
  };
  virtual std::vector<InitPhase> initPhases() const { return {}; }

  // Returns: the link type to each rank, by rank, for describe(), such as "shm" or "tcp"; empty if
  // the backend does not report it.
  virtual std::vector<std::string> links() const { return {}; }
  struct AlgorithmRange {
    OpName operation;
    int64_t
        bytes_from;  // size of a rank's largest buffer; the range ends where the next one begins
    std::string algorithm;
    int64_t chunk_bytes;  // 0: the whole message at once
    std::string why;
  };
  // Returns: which algorithm runs an operation at which sizes, for describe(); empty if the backend
  // does not report it.
  virtual std::vector<AlgorithmRange> algorithms() const { return {}; }

 protected:
  // Both functions log an exception that a hook throws, and continue with the next hook. The hooks
  // run on the calling thread, without the lock.
  void runAbortHooks() noexcept;
  void fireGraphReplayHook(uint64_t graph_id, uint64_t replay_id, uint64_t stream, uint64_t index,
                           std::string_view event) noexcept;

 private:
  mutable std::mutex hooks_mutex_;  // guards both maps
  std::map<int64_t, AbortHook> abort_hooks_;
  std::map<int64_t, GraphReplayHook> graph_replay_hooks_;
};

}  // namespace torch::comms
