#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/nccl/graphs/graph_registry.hpp"
#include "backends/nccl/graphs/graph_replay_monitor.hpp"
#include "backends/nccl/graphs/kept_storages.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/nccl_device.hpp"
#include "backends/nccl/windows/buffer_registrations.hpp"
#include "backends/nccl/windows/window_registry.hpp"
#include "core/work/abort_hook_runner.hpp"
#include "core/work/inflight_counter.hpp"
#include "core/work/watchdog.hpp"
#include "vendor/communicator.hpp"

namespace torch::comms::common {
class PeerMonitor;
}

namespace torch::comms::nccl {

using common::PeerMonitor;
class CollectiveKernels;
class NcclWork;

// The operations of one communicator in the order of its calls. Each operation begins when the one
// before it is done, also if their streams differ. The queue watches their timeouts, which count
// from the begin of an operation on its stream. When one operation fails, the queue fails all of
// them.
//
// Threads: any; LaunchScope and the methods whose comments say so belong to the thread that calls
// operations.
// Lifetime: owned by a std::shared_ptr. The watchdog keeps the queue during a launch, and while
// operations are in flight or graph replays are watched.
class LaunchQueue final : public WatchdogClient, public std::enable_shared_from_this<LaunchQueue> {
 public:
  struct FailureCallbacks {
    // Runs once, on the thread that finds a failure, before the works fail. It must not block. It
    // fails everything that depends on this queue, and starts `abort_hooks`. Arguments: the queue
    // and the reason.
    std::function<void(const LaunchQueue&, const CommError&)> on_failure;
    // Runs when an operation that has no work fails, such as one in a graph replay, on the thread
    // that finds the failure. Its argument is a FailedWork with the same error.
    std::function<void(TorchWork&)> on_unowned_failure;
    // Runs for each graph replay event that poll() finds, on the polling thread.
    std::function<void(const GraphReplayMonitor::ReplayEvent&)> on_replay_event;
    // Runs the program's abort hooks. A call that raises the failure first waits for them.
    std::shared_ptr<const AbortHookRunner> abort_hooks;
  };
  // `peer_monitor` reports ranks that have failed or that called another operation, and the ranks
  // that a late operation waits for. No pointer may be null.
  LaunchQueue(std::string name, std::shared_ptr<Communicator> communicator,
              std::shared_ptr<NcclDevice> device, std::unique_ptr<GraphReplayMonitor> replays,
              FailureCallbacks callbacks, std::unique_ptr<PeerMonitor> peer_monitor);
  ~LaunchQueue() override;
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  const std::string& name() const noexcept { return name_; }
  Communicator& communicator() const noexcept { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const noexcept {
    return communicator_;
  }
  NcclDevice& device() const noexcept { return *device_; }
  const std::shared_ptr<InFlightCounter>& in_flight() const noexcept { return in_flight_; }
  // Threads: registrations() and windows(): only the thread that calls operations.
  BufferRegistrations& registrations() noexcept { return registrations_; }
  WindowRegistry& windows() noexcept { return windows_; }
  GraphReplayMonitor& replay_monitor() const noexcept { return *replay_monitor_; }
  // Attaches kernels that run some operations and that fail together with the queue. They live as
  // long as the queue and all graphs that hold launches of them. `serialized`: no operations may
  // run concurrently, also in graphs; see GraphRegistry. Call it at most once.
  // Threads: only the thread that calls operations.
  void attach_kernels(std::shared_ptr<CollectiveKernels> kernels, bool serialized);

  // The scope in which one operation is enqueued on a stream. The stream waits for the operation
  // before, and for the current stream if that is another one. Until finish_launch() or the
  // destructor, the call's timeout covers the launch itself, because the library may wait for other
  // ranks in it. A scope that ends without finish_launch() leaves no operation in the queue.
  //
  // Throws: the constructor: the communicator's failure; CommError(kVendor) of the runtime.
  // Threads: only the thread that calls operations; another launch blocks meanwhile.
  // Lifetime: `queue` and `call` must outlive the scope.
  class LaunchScope {
   public:
    // A capture always uses the current stream. Operations on host memory always use the queue's
    // own stream.
    struct LaunchStreamChoice {
      bool use_current_stream;
      std::optional<bool> high_priority =
          {};  // of the queue's own stream; nothing: the communicator's
    };
    LaunchScope(LaunchQueue& queue, const NcclCall& call, const LaunchStreamChoice& where);
    ~LaunchScope();
    LaunchScope(const LaunchScope&) = delete;
    LaunchScope& operator=(const LaunchScope&) = delete;
    gpu::NativeStream stream() const noexcept { return stream_; }
    // Torch's current stream of this thread.
    gpu::NativeStream current() const noexcept { return current_; }
    // Ends the launch of the operation; call it once. `keep` lives until the operation is done. For
    // a captured operation it is dropped at once, because the graph owns the memory.
    // Returns: the operation's work. For a captured operation it is completed already. If the
    // communicator has failed meanwhile, so has the work.
    // Throws: CommError(kVendor).
    c10::intrusive_ptr<NcclWork> finish_launch(KeptStorages keep);

   private:
    friend class NcclWork;
    c10::intrusive_ptr<NcclWork> finish_capture(c10::intrusive_ptr<NcclWork> work);
    LaunchQueue& queue_;
    std::unique_lock<std::mutex> launch_lock_;  // held until the operation has been launched
    const NcclCall& call_;
    const NcclDevice::CurrentDeviceGuard device_;
    const gpu::NativeStream current_;
    gpu::NativeStream stream_ = nullptr;
    gpu::CaptureId capture_ = 0;
    gpu::EventPool::Lease started_;  // none in a capture, or shortly after another operation
    // Only in a capture:
    std::shared_ptr<GraphRegistry::CapturedGraph> graph_;
    GraphReplayMonitor::TrackedOperation tracked_;
  };

  // Aborts the communicator on this rank and fails all its operations with `why`, or with the
  // communicator's error if it has failed before. The abort is announced to the peers before the
  // library aborts, because a library's abort lets operations of peers complete without this rank's
  // data. Later calls, and calls after release_for_shrink(), do nothing. It does not block: another
  // thread waits for the peers and the library.
  void abort(const CommError& why);
  // abort() for a thread of the program. With `blocks` it also ends the library's communicator
  // after release_for_shrink().
  // Blocks: until the abort hooks have run, at most 1 s after their start; with `blocks` then until
  // the library has aborted, at most another 2 s. It waits for neither in an abort hook.
  void abort_and_wait(const CommError& why, bool blocks);
  // Announces to the peers that the library's communicator is about to end other than by abort(),
  // with `why`. Does nothing if the communicator has failed, is not connected or is closed, or
  // after release_for_shrink().
  // Blocks: as PeerMonitor::wait_abort_acknowledged().
  void announce_abort(const CommError& why);
  // Prepares the communicator for ncclCommShrink. Announces the abort to the peers, and fails
  // operations in flight with `why`. Afterwards no failure aborts this queue, except by
  // abort_and_wait() with `blocks`.
  // Returns: false if the communicator has failed already.
  // Blocks: as PeerMonitor::wait_abort_acknowledged().
  bool release_for_shrink(const CommError& why);
  // Aborts the communicator if the monitor reports that a peer has failed or has aborted it, or
  // that ranks disagree. One atomic load if not.
  void abort_if_peer_failed(const std::function<Context()>& context);
  PeerMonitor& peer_monitor() const noexcept { return *peer_monitor_; }
  // Returns: why the communicator has failed, or nothing; checks its kernels first, and aborts if
  // they have failed. `context` becomes the context of an error of the kernels.
  std::optional<CommError> failure(const Context& context);
  // Records that a call is about to raise the failure.
  // Blocks: until the abort hooks have run, at most 1 s after their start; not in an abort hook.
  void mark_failure_observed() noexcept;
  bool is_failure_observed() const noexcept { return is_failure_observed_.load(); }

  // The next captured operation uses memory that all operations of its kind share, so that no two
  // may run concurrently; see GraphRegistry.
  // Threads: only the thread that calls operations.
  void serialize_with_graphs() { graphs_->serialize_with_graphs(); }
  // True if graphs that may still be launched hold operations of this queue.
  bool has_live_graphs() noexcept { return graphs_->has_live(); }
  // True if a graph has captured operations of the attached kernels, also after it was destroyed.
  bool has_been_captured() const noexcept { return kernels_in_graphs_; }
  GraphRegistry& graphs() noexcept { return *graphs_; }

  // Waits until no operation is in flight. Operations in graph replays do not count.
  // Returns: false if one is still in flight after `limit`.
  bool wait_idle(std::chrono::milliseconds limit);
  bool is_idle();
  // True if a synchronous operation is in flight. Its caller sees no work that could report a
  // failure.
  bool has_pending_sync();

  void poll(Clock::time_point now) noexcept override;
  // Polls for one work. On return the work has its final status, or its operation is still running.
  void poll_work(NcclWork& work) noexcept;
  bool is_active() noexcept override;

 private:
  using Works = std::vector<c10::intrusive_ptr<NcclWork>>;
  bool is_done(const NcclWork& work) noexcept;
  void complete(NcclWork& work) noexcept;
  size_t count_done() noexcept;
  // Returns: the launch in progress, if there is one.
  std::optional<NcclCall> current_launch() const noexcept;
  // Returns: the operation whose launch has exceeded its timeout, if there is one.
  std::optional<NcclCall> find_timed_out_launch(Clock::time_point now) const noexcept;
  // Returns: the time at which the current launch began, if that was at least kLateThreshold ago.
  std::optional<Clock::time_point> find_slow_launch(Clock::time_point now) const noexcept;
  // The single path by which all operations fail, see abort(). `timed_out`: the work that gets
  // status TIMEDOUT; may be null.
  // Returns: true if `why` became the communicator's error.
  bool abort_all(const CommError& why, const NcclWork* timed_out);
  // Sets all works in flight to failed.
  void fail_works(const std::exception_ptr& why, const NcclWork* timed_out);
  // Aborts because the timeout of `call` has passed, once the peers' progress is known.
  // Returns: true if that became the communicator's error; false also while the query of the
  // progress is in flight, after which a later poll() aborts.
  bool abort_on_timeout(const NcclCall& call, const std::string& text, const NcclWork* timed_out);
  void abort_on_late_replay(const GraphReplayMonitor::LateReplay& late);
  // Reports that the queue has failed with operations that have no work, such as those of a graph's
  // replay.
  void report_unowned_failure();
  // Returns: true if a failure of the kernels became the communicator's error.
  bool abort_if_kernels_failed(const std::function<Context()>& context);
  void start_polling();
  // True if graph replays may run kernels, for which there is no work.
  bool has_watched_kernels() const noexcept;
  // Aborts if the kernels or the library (ncclCommGetAsyncError) report an error, or if a peer has
  // aborted the communicator.
  void abort_on_library_error(const std::function<Context()>& context);
  // Drains the monitor if this process may have been suspended until `now`; see
  // PeerMonitor::drain_after_suspend().
  bool drain_after_suspend(Clock::time_point now) noexcept;
  // Completes the abort if the communicator has failed other than through abort_all().
  void abort_if_failed();
  // Returns: why operations in flight cannot complete: the monitor's failure, or a peer that has
  // failed; else nothing. `query_errors`: also runs the checks that take longer.
  std::optional<CommError> find_exited_rank(const Context& context, bool query_errors);
  // Passes a peer's failure to the kernels. Graph replays may run them although no work is in
  // flight.
  void set_kernel_warning(const Context& context);

  const std::string name_;
  BufferRegistrations registrations_;  // declared before the communicator, which is destroyed first
  WindowRegistry windows_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<NcclDevice> device_;
  std::shared_ptr<CollectiveKernels> shared_kernels_;
  std::atomic<CollectiveKernels*> kernels_{nullptr};  // shared_kernels_.get(), for other threads
  std::atomic<bool> kernels_in_graphs_{false};
  const std::shared_ptr<InFlightCounter> in_flight_ = std::make_shared<InFlightCounter>();
  const std::unique_ptr<GraphReplayMonitor> replay_monitor_;
  std::unique_ptr<GraphRegistry> graphs_;
  const FailureCallbacks callbacks_;
  std::atomic<bool> is_failure_observed_{false};
  std::atomic<bool> is_polled_{false};  // false: the watchdog may have dropped this queue
  std::mutex launch_mutex_;             // serializes launches; guards last_marker_ and last_launch_
  // The launch in progress, written by the calling thread.
  struct CurrentLaunch {
    std::atomic<OpName> op{};
    std::atomic<const char*> name{nullptr};  // it points at NcclCall::name, a literal
    std::atomic<std::chrono::milliseconds> timeout{};
    std::atomic<bool> has_own_timeout{};
    std::atomic<uint64_t> sequence{0};
    std::atomic<Clock::time_point> deadline{
        Clock::time_point{}};  // the epoch: no launch is in progress
  } current_launch_;

  const std::shared_ptr<PeerMonitor> peer_monitor_;
  // When drain_after_suspend() was last called, and when it last drained the monitor.
  std::atomic<Clock::time_point> last_poll_{Clock::now()}, last_drain_{last_poll_.load()};

  std::mutex abort_mutex_;  // held while deciding to abort or to release; guards is_aborted_,
                            // library_aborted_
  // True if abort_all() has run. The communicator may have failed without it.
  bool is_aborted_ = false;
  std::shared_future<void> library_aborted_;
  std::atomic<bool> is_released_for_shrink_{false};

  // Guards the members up to late_replay_, and members of NcclWork; partner of idle_.
  std::mutex mutex_;
  std::condition_variable idle_;
  Works works_in_flight_;
  Clock::time_point next_error_query_{};  // when the library is next asked for an error
  std::optional<GraphReplayMonitor::LateReplay> late_replay_;
  // The last operation outside of captures, and the time of its launch.
  StreamMarker last_marker_;
  Clock::time_point last_launch_{};
};

}  // namespace torch::comms::nccl
