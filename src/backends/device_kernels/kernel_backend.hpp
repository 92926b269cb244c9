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

// A vendor's backend where kernels of a team (ctran/device) may run collectives in the library's
// place. An operation that the kernels run has the order, the limit, the work and the captures of
// every other one of the communicator; when a kernel is stopped, the communicator ends.
//
// Whether kernels run an operation is the same on all ranks.
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
  // With what of the kernels' workspace came after the communicator was made.
  std::map<std::string, uint64_t> memory_usage() const override;
  Capabilities capabilities() const override;

  // Windows of tensors on the device, while there are kernels.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;
  // Messages of users' kernels: see torchcomms/device/transport.hpp. Collective at first; throws
  // CommError(kUnsupported) on all ranks where there are no kernels.
  int64_t get_device_transport() override;
  // A program may launch kernels of its own from now on, which have no works.
  void mark_user_kernels() noexcept { has_user_kernels_ = true; }
  bool may_still_run() const override {
    return has_user_kernels_ || NcclApiBackend::may_still_run();
  }
  // What a wait of users' kernels has; 0: none.
  uint64_t user_kernel_timeout_ns() const;
  // Whether a window of the device could be opened; else why not. A rank alone has kernels from
  // now on.
  std::optional<std::string> windows_unavailable_reason();

  // For windows. Collective; throws CommError(kUnsupported) on all ranks where one is `unwilling`,
  // or has memory that peers cannot map. The window, and `memory`, are kept until it is closed, or
  // the communicator ends.
  std::shared_ptr<const ctran::DeviceWindow> open_window(std::string_view method,
                                                         const ctran::DeviceWindow::RankMemory& own,
                                                         std::string unwilling,
                                                         const c10::Storage& memory);
  // Collective: nobody uses its memory any more then, but who has mapped it.
  void close_window(std::string_view method, std::shared_ptr<const ctran::DeviceWindow> window);
  // One step of a window, with the limit and the work of an operation: those that give have the
  // order of the operations, those that wait one of their own. `body` enqueues it.
  WorkPtr run_window_step(
      const WindowCall& step, bool async_op, const OperationOptions& options,
      const std::function<void(gpu::NativeStream stream, uint64_t limit_ns)>& body);
  // Zeros in memory that peers can map. It lives on its own.
  at::Tensor mappable_tensor(at::IntArrayRef sizes, at::ScalarType dtype);
  // Returns when all is done that the current stream has.
  void synchronize_current_stream() const;
  Context window_context(std::string_view method) const;
  // Runs `body`, in which all ranks meet, with the device current and also while a stream is
  // captured. Errors get the context of `now`. Where an interrupt ends it, the communicator has
  // failed: other ranks may have come further.
  void run_collective_setup(const nccl::NcclCall& now, const std::function<void()>& body);
  // Runs `body`, which throws CommError without context, with the device current and also while a
  // stream is captured.
  void with_device(std::string_view method, const std::function<void()>& body);
  const std::shared_ptr<ctran::TeamKernels>& shared_kernels() const noexcept { return kernels_; }

 protected:
  using NcclApiBackend::NcclApiBackend;

  // Every member's words to all of them, by rank, while there are kernels. Collective, as a part of
  // `now`, whose limit it has.
  virtual std::vector<std::string> all_gather_strings(const std::string& words,
                                                      const nccl::NcclCall& now) = 0;
  virtual std::string kernels_unavailable_reason() const = 0;
  // Whether a library runs what kernels cannot.
  virtual bool has_library() const { return true; }
  // Of one member: it has kernels for what is beside collectives. "", or why not.
  virtual std::string set_up_single_rank();

  // A collective begins: ranks that have not met for their kernels may do so now.
  virtual void before_collective() {}
  // An operation before it is known who runs it; alike on all ranks.
  struct SelectionQuery {
    OpName op;
    size_t bytes;  // of the largest buffer of a rank
    ctran::kernels::LaunchMode mode;
    const OperationOptions& options;
    ctran::kernels::TensorMemory memory = ctran::kernels::TensorMemory::kPlain;
  };
  // Who runs `call`, which is what was asked or a part of it. Of kernels it sets algorithm and
  // blocks, or leaves them to the library of kernels. Throws CommError without context. Of equal
  // calls without hints one is asked about, until clear_selection_cache().
  struct KernelDecision {
    bool use_kernels;
    bool is_measured = false;  // on such a GPU: by a row of the tuning file
  };
  virtual KernelDecision choose(ctran::kernels::KernelCall& call,
                                const SelectionQuery& asked) const = 0;
  // The blocks that a collective may have while its algorithm is left open; 0: any number. Throws
  // CommError without context.
  virtual int max_blocks(ctran::kernels::Collective, const OperationOptions&) const { return 0; }
  // What calls without hints ask for has changed.
  void clear_selection_cache() noexcept { selection_cache_.clear(); }
  // What was measured of `call`: sets what it says. `library_may`: rows that prefer the library
  // count. Nothing where no row says anything.
  std::optional<KernelDecision> choose_from_tuning(ctran::kernels::KernelCall& call,
                                                   const SelectionQuery& asked,
                                                   bool library_may) const;
  // The library is about to run it in the place of kernels. May throw CommError without context.
  virtual void require_library_allowed(ctran::kernels::Collective, const OperationOptions&) const {}
  // Whether a launch that lacks room in the team's workspace gets it. Waits for no other rank's
  // call.
  bool ensure_workspace(const nccl::NcclCall& now);
  // Why kernels cannot have more memory than they have; "" while nothing speaks against it.
  const std::string& workspace_error() const noexcept { return workspace_error_; }
  // Who runs what the kernels do not, and why it is so, for algorithms().
  struct Fallback {
    std::string algorithm, reason;
  };
  virtual Fallback fallback_for(ctran::kernels::Collective collective) const = 0;

  // The kernels of this connection, or null, and what was measured of such; those before go with
  // their lane.
  void set_kernels(std::shared_ptr<ctran::TeamKernels> kernels, ctran::MeasuredRows measured = {});
  // All ranks have met for them after the communicator was made.
  void on_connected_late();
  // Whether the current stream records a graph.
  bool is_capturing() const;
  const ctran::TeamKernels* kernels() const noexcept { return kernels_.get(); }
  void on_connected() override;
  void before_launch(const OperationOptions& options) override;
  // What hint `registered` says of an operation. Throws CommError(kInvalidArgument) without
  // context.
  ctran::RegisteredBufferMode registered_mode_of(const OperationOptions& options) const;
  // Enqueues kernels as one operation of this communicator. They get the limit, which ends them.
  using Enqueue = std::function<void(ctran::TeamKernels&, gpu::NativeStream, uint64_t limit_ns)>;
  WorkPtr run_kernels(nccl::NcclCall now, const OperationOptions& options,
                      const OperandTensors& tensors, const Enqueue& enqueue);

 private:
  ctran::TeamWindow::BackendLookup window_home();
  ctran::WindowLifetimes::GraphCounts count_graphs();
  // Throws CommError(kUnsupported) without context.
  void require_kernels();
  // What a kernel is given for its limit: more than the operation's. Where that is the
  // communicator's, kernels look it up.
  static uint64_t timeout_ns_of(const nccl::NcclCall& call);
  void set_kernel_timeout() noexcept;
  // Collectives that are one operation, the bytes of the largest buffer of each on a rank, and the
  // tensors that it keeps.
  struct KernelRequest {
    OpName op;
    std::span<ctran::kernels::KernelCall> calls;
    size_t bytes;
    std::initializer_list<const at::Tensor*> tensors;
    std::initializer_list<const Tensors*> lists = {};
    // What is copied behind them; nothing where it does not go elsewhere.
    struct TrailingCopy {
      void* to = nullptr;
      const void* from = nullptr;
      size_t bytes = 0;
    } trailing_copy = {};
  };
  // What an operation of it enqueues behind its kernels.
  void enqueue_trailing_copy(const KernelRequest& offer, gpu::NativeStream stream) const;
  // What runs which sizes, for algorithms().
  void add_ranges(std::vector<AlgorithmRange>& ranges, ctran::kernels::Collective collective,
                  ctran::kernels::LaunchMode mode) const;
  // choose(), of a call that was chosen for before without asking.
  bool should_use_kernels(ctran::kernels::KernelCall& call, const SelectionQuery& asked);
  // What matters of it to the measured rows.
  ctran::kernels::LaunchMode mode_of(const ctran::kernels::KernelCall& call) const;
  // The window that has the tensor of it which has to be in one, as hint `registered` says that it
  // is on all ranks; else null.
  const ctran::DeviceWindow* find_window_of(const KernelRequest& offer,
                                            const OperationOptions& options) const;
  // What is offered, where the peers are to write its output in `window` themselves.
  std::optional<ctran::kernels::WindowCollectiveCall> to_window_collective(
      const KernelRequest& offer, const ctran::DeviceWindow& window,
      const OperationOptions& options);
  // Kernels move what copy engines were asked for; said once.
  void warn_copy_engines_unused();
  bool ensure_workspace_for(const nccl::NcclCall& now, const KernelRequest& offer,
                            const std::optional<ctran::kernels::WindowCollectiveCall>& there);
  // Launches it there.
  WorkPtr run_window_collective(const nccl::NcclCall& now, const OperationOptions& options,
                                const KernelRequest& offer,
                                ctran::kernels::WindowCollectiveCall there);
  // Launches it by kernels; null where the library is to run it.
  WorkPtr try_kernels(const KernelRequest& offer, bool async_op, const OperationOptions& options);
  // Throws kInvalidArgument.
  std::optional<ctran::KernelCallFactor> factor_for(OpName op, const ReduceOp& reduction,
                                                    const at::Tensor& tensor) const;
  WorkPtr try_kernels_on_slots(OpName op, const at::Tensor& output, const Tensors& input,
                               const ReduceOp& reduction, bool async_op,
                               const OperationOptions& options);

  std::shared_ptr<ctran::TeamKernels> kernels_;
  std::string workspace_error_;  // alike on all ranks
  uint64_t late_workspace_bytes_ =
      0;  // of the workspace, that came after the communicator was made
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
