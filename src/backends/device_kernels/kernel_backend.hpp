#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/device_kernels/registered_buffers.hpp"
#include "backends/device_kernels/team_window.hpp"
#include "backends/device_kernels/window_lifetime.hpp"
#include "backends/nccl/api/nccl_api_backend.hpp"
#include "ctran/kernels/host/launch_plan_cache.hpp"
#include "ctran/kernels/host/library.hpp"
#include "ctran/team/device_window.hpp"
#include "ctran/team/kernel_selection.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms {

namespace ctran {
class DeviceTransport;
class TeamKernels;
struct KernelCallFactor;
}  // namespace ctran

// A vendor backend in which kernels of a device team (ctran/team) may run collectives in place of
// the library. An operation that kernels run has the same order, timeout, work and graph captures
// as every other operation of the communicator. When a kernel fails, the communicator is aborted.
//
// All ranks decide the same for each operation whether kernels run it.
class TC_API KernelBackend : public NcclApiBackend {
 public:
  void finalize() override;
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) override;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) override;
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options) override;
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options) override;
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;

  std::vector<AlgorithmRange> algorithms() const override;
  // Includes the workspace that was allocated after the communicator was created.
  std::map<std::string, uint64_t> memory_usage() const override;
  Capabilities capabilities() const override;

  // Windows of tensors on the device, if there are kernels.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;
  // Returns: the handle for messages in users' kernels, see torchcomms/device/transport.hpp. The
  // first call is collective.
  // Throws: CommError(kUnsupported) on all ranks if there are no kernels.
  int64_t get_device_transport() override;
  // Records that the program may launch kernels of its own from now on, for which there are no
  // works.
  void mark_user_kernels() noexcept { has_user_kernels_ = true; }
  bool may_still_run() const override {
    return has_user_kernels_ || NcclApiBackend::may_still_run();
  }
  // Returns: the timeout of waits in users' kernels; 0: none.
  // Units: nanoseconds.
  uint64_t user_kernel_timeout_ns() const;
  // Creates the kernels if that is still possible; a single rank always can.
  // Returns: nothing if device windows can be opened; else why not.
  std::optional<std::string> windows_unavailable_reason();

  // Opens a window for TeamWindow. Collective. `local_error`: why this rank cannot take part; else
  // "".
  // Throws: CommError(kUnsupported) on all ranks if one is unwilling or has memory that peers
  // cannot map.
  // Lifetime: the window and `memory` are kept until the window is closed or the communicator ends.
  std::shared_ptr<const ctran::DeviceWindow> open_window(std::string_view method,
                                                         const ctran::DeviceWindow::RankMemory& own,
                                                         std::string local_error,
                                                         const c10::Storage& memory);
  // Closes a window. Collective. Afterwards only ranks that still map its memory may use it.
  void close_window(std::string_view method, std::shared_ptr<const ctran::DeviceWindow> window);
  // Enqueues one step of a window as an operation with timeout and work. Outgoing steps run in the
  // order of the operations, waits in an order of their own. `body` enqueues the step.
  WorkPtr run_window_step(
      const WindowCall& step, bool async_op, const OperationOptions& options,
      const std::function<void(gpu::NativeStream stream, uint64_t limit_ns)>& body);
  // Returns: a tensor of zeros in memory that peers can map. It is independent of the communicator.
  at::Tensor mappable_tensor(at::IntArrayRef sizes, at::ScalarType dtype);
  // Blocks: until the current stream has completed all its work.
  void synchronize_current_stream() const;
  Context window_context(std::string_view method) const;
  // Runs `body`, which is collective, with the device current; also while a stream is being
  // captured. Errors get the context of `now`. An interrupt aborts the communicator, because peers
  // may be further.
  void run_collective_setup(const nccl::NcclCall& now, const std::function<void()>& body);
  // Runs `body` with the device current; also while a stream is being captured. A CommError of
  // `body` gets the context of `method`.
  void with_device(std::string_view method, const std::function<void()>& body);
  const std::shared_ptr<ctran::TeamKernels>& shared_kernels() const noexcept { return kernels_; }

 protected:
  using NcclApiBackend::NcclApiBackend;

  // Gathers a string of each member, by rank. Collective; called only when there are kernels. The
  // timeout is that of `now`.
  virtual std::vector<std::string> all_gather_strings(const std::string& text,
                                                      const nccl::NcclCall& now) = 0;
  virtual std::string kernels_unavailable_reason() const = 0;
  // True if a vendor library runs what kernels cannot.
  virtual bool has_library() const { return true; }
  // Creates kernels for a communicator of one member, for windows and users' kernels.
  // Returns: "", or why that is not possible.
  virtual std::string set_up_single_rank();

  // Runs when a collective begins; ranks that have not set up their kernels may do so now.
  virtual void before_collective() {}
  // An operation for which kernels or the library are to be chosen; equal on all ranks.
  struct SelectionQuery {
    OpName op;
    size_t bytes;  // bytes of the largest buffer of a rank
    ctran::kernels::LaunchMode mode;
    const OperationOptions& options;
    ctran::kernels::TensorMemory memory = ctran::kernels::TensorMemory::kPlain;
  };
  // Decides whether kernels or the library run `call`, which is the operation of `query` or a part
  // of it. For kernels it sets algorithm and blocks, or leaves them to the kernel library. Of equal
  // calls without hints only the first is decided, until clear_selection_cache().
  // Throws: CommError without context.
  struct KernelDecision {
    bool use_kernels;
    bool is_measured = false;  // decided by a row of the tuning file for this GPU model
  };
  virtual KernelDecision choose(ctran::kernels::KernelCall& call,
                                const SelectionQuery& query) const = 0;
  // Returns: the most thread blocks that a collective may use if no algorithm is requested; 0: any
  // number.
  // Throws: CommError without context.
  virtual int max_blocks(ctran::kernels::Collective, const OperationOptions&) const { return 0; }
  // Drops the cached decisions, because the defaults of calls without hints have changed.
  void clear_selection_cache() noexcept { selection_cache_.clear(); }
  // Decides `call` by the measured rows of the tuning file, and sets its algorithm and blocks.
  // `library_may`: rows that prefer the library count, too.
  // Returns: nothing if no row applies.
  std::optional<KernelDecision> choose_from_tuning(ctran::kernels::KernelCall& call,
                                                   const SelectionQuery& query,
                                                   bool library_may) const;
  // Checks that the library may run the collective in place of kernels. May throw CommError without
  // context.
  virtual void require_library_allowed(ctran::kernels::Collective, const OperationOptions&) const {}
  // Allocates the full workspace for a launch that needs it. Collective: all ranks that call the
  // same operation come here, or none.
  // Returns: false if that is not possible.
  bool ensure_workspace(const nccl::NcclCall& now);
  // Returns: why the workspace cannot be extended; "" if no attempt has failed.
  const std::string& workspace_error() const noexcept { return workspace_error_; }
  // The algorithm that runs what kernels do not, and the reason, for algorithms().
  struct Fallback {
    std::string algorithm, reason;
  };
  virtual Fallback fallback_for(ctran::kernels::Collective collective) const = 0;

  // Sets the kernels of this connection, or null, and their measured rows. The former kernels live
  // as long as their LaunchQueue.
  void set_kernels(std::shared_ptr<ctran::TeamKernels> kernels, ctran::MeasuredRows measured = {});
  // Call it when all ranks have set up kernels after the communicator was created.
  void on_connected_late();
  // True if the current stream is being captured.
  bool is_capturing() const;
  const ctran::TeamKernels* kernels() const noexcept { return kernels_.get(); }
  void on_connected() override;
  void before_launch(const OperationOptions& options) override;
  // Returns: the value of hint `registered` for an operation.
  // Throws: CommError(kInvalidArgument) without context.
  ctran::RegisteredBufferMode registered_mode_of(const OperationOptions& options) const;
  // Enqueues kernels as one operation of this communicator. The kernels end themselves at
  // `limit_ns`.
  using Enqueue = std::function<void(ctran::TeamKernels&, gpu::NativeStream, uint64_t limit_ns)>;
  WorkPtr run_kernels(nccl::NcclCall now, const OperationOptions& options,
                      const OperandTensors& tensors, const Enqueue& enqueue);

 private:
  ctran::TeamWindow::BackendLookup window_backend_lookup();
  ctran::WindowLifetimes::GraphCounts count_graphs();
  // Throws: CommError(kUnsupported) without context, if there are no kernels.
  void require_kernels();
  // Returns: the timeout that a kernel gets, which is longer than the operation's. For the
  // communicator's default, the kernel reads the current value itself.
  // Units: nanoseconds.
  static uint64_t timeout_ns_of(const nccl::NcclCall& call);
  void set_kernel_timeout() noexcept;
  // One operation for kernels: its collectives, the bytes of a rank's largest buffer, and the
  // tensors that it keeps alive.
  struct KernelRequest {
    OpName op;
    std::span<ctran::kernels::KernelCall> calls;
    size_t bytes;
    std::initializer_list<const at::Tensor*> tensors;
    std::initializer_list<const Tensors*> lists = {};
    // A copy after the kernels; none if the result is in its place already.
    struct TrailingCopy {
      void* to = nullptr;
      const void* from = nullptr;
      size_t bytes = 0;
    } trailing_copy = {};
  };
  // Enqueues the copy after the kernels, if there is one.
  void enqueue_trailing_copy(const KernelRequest& request, gpu::NativeStream stream) const;
  // Adds which algorithm runs which sizes, for algorithms().
  void add_ranges(std::vector<AlgorithmRange>& ranges, ctran::kernels::Collective collective,
                  ctran::kernels::LaunchMode mode) const;
  // Returns the decision of choose(), from the cache if there is one.
  bool should_use_kernels(ctran::kernels::KernelCall& call, const SelectionQuery& query);
  // Returns: the launch mode of a call, if the measured rows distinguish it.
  ctran::kernels::LaunchMode mode_of(const ctran::kernels::KernelCall& call) const;
  // Returns: the window that contains the request's tensor, if hint `registered` promises that this
  // is so on all ranks; else null.
  const ctran::DeviceWindow* find_window_of(const KernelRequest& request,
                                            const OperationOptions& options) const;
  // Converts the request into a window collective, in which peers write its output in `window`
  // directly.
  // Returns: nothing if a plain collective is to run.
  std::optional<ctran::kernels::WindowCollectiveCall> to_window_collective(
      const KernelRequest& request, const ctran::DeviceWindow& window,
      const OperationOptions& options);
  // Logs once that kernels move the data although copy engines were requested.
  void warn_copy_engines_unused();
  bool ensure_workspace_for(const nccl::NcclCall& now, const KernelRequest& request,
                            const std::optional<ctran::kernels::WindowCollectiveCall>& window_call);
  // Launches the request as a window collective.
  WorkPtr run_window_collective(const nccl::NcclCall& now, const OperationOptions& options,
                                const KernelRequest& request,
                                ctran::kernels::WindowCollectiveCall window_call);
  // Launches the request by kernels; returns null if the library is to run it.
  WorkPtr try_kernels(const KernelRequest& request, bool async_op, const OperationOptions& options);
  // Returns: the factor of a reduction; nothing if kernels do not support it.
  // Throws: CommError(kInvalidArgument).
  std::optional<ctran::KernelCallFactor> factor_for(OpName op, const ReduceOp& reduction,
                                                    const at::Tensor& tensor) const;
  WorkPtr try_kernels_on_slots(OpName op, const at::Tensor& output, const Tensors& input,
                               const ReduceOp& reduction, bool async_op,
                               const OperationOptions& options);

  std::shared_ptr<ctran::TeamKernels> kernels_;
  std::string workspace_error_;        // equal on all ranks
  uint64_t late_workspace_bytes_ = 0;  // workspace allocated after the communicator was created
  ctran::MeasuredRows tuning_rows_;
  struct CachedSelection {
    bool use_kernels = false;
    ctran::kernels::KernelAlgorithm algorithm{};
    int32_t blocks = 0;
  };
  ctran::kernels::LaunchPlanCache<CachedSelection> selection_cache_;
  ctran::RegisteredBufferMode registered_mode_{};
  std::shared_ptr<const ctran::DeviceTransport> transport_;  // of kernels_
  std::atomic<bool> has_user_kernels_{false};
  bool has_warned_copy_engines_ = false;
};

}  // namespace torch::comms
