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

// The operations of a communicator in the order of its calls: on whatever streams they are, each
// begins when the one before is done. Watches their deadlines, which count from when they begin,
// and ends them all when one fails.
//
// Threads: slots are of the one that calls operations; the others from any.
class LaunchQueue final : public WatchdogClient, public std::enable_shared_from_this<LaunchQueue> {
 public:
  struct FailureCallbacks {
    // Runs once, on the thread that finds a failure, and must not block: has all else end that ends
    // with the lane, and begins `hooks`. Gets the lane, and why.
    std::function<void(const LaunchQueue&, const CommError&)> on_failure;
    // The same for one of operations that nobody has a work of: gets one that has failed with it.
    std::function<void(TorchWork&)> on_unowned_failure;
    // Runs for each that a look finds, on the thread that looks.
    std::function<void(const GraphReplayMonitor::ReplayEvent&)> on_replay_event;
    // Of the program: whoever raises the failure does so when they have run.
    std::shared_ptr<const AbortHookRunner> abort_hooks;
  };
  // `others` tell of ranks that have ended or called something else while operations are under way,
  // and of those that a late one waits for.
  LaunchQueue(std::string name, std::shared_ptr<Communicator> communicator,
              std::shared_ptr<NcclDevice> device, std::unique_ptr<GraphReplayMonitor> replays,
              FailureCallbacks alarms, std::unique_ptr<PeerMonitor> others);
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
  // Of the thread that calls operations.
  BufferRegistrations& registrations() noexcept { return registrations_; }
  WindowRegistry& windows() noexcept { return windows_; }
  GraphReplayMonitor& replay_monitor() const noexcept { return *replay_monitor_; }
  // Has kernels that run some operations, which end with the others. They go with this lane, or
  // with the last of the graphs that have them. `apart`: none may run beside another one, see
  // GraphRegistry. Of the same thread; once.
  void attach_kernels(std::shared_ptr<CollectiveKernels> kernels, bool apart);

  // The stream for an operation, ready for it: behind the operation before, and behind what the
  // current stream has where it is another. While it lives, the launch has the call's limit, too:
  // the library may wait for other ranks in it.
  class LaunchScope {
   public:
    struct LaunchStreamChoice {
      bool use_current_stream;
      std::optional<bool> high_priority =
          {};  // of the own stream; nothing: as the communicator has
    };
    LaunchScope(LaunchQueue& lane, const NcclCall& call, const LaunchStreamChoice& where);
    ~LaunchScope();
    LaunchScope(const LaunchScope&) = delete;
    LaunchScope& operator=(const LaunchScope&) = delete;
    gpu::NativeStream stream() const noexcept { return stream_; }
    // What torch works on in this thread.
    gpu::NativeStream current() const noexcept { return current_; }
    // The operation has been launched. `keep` lives until it is done.
    c10::intrusive_ptr<NcclWork> finish_launch(KeptStorages keep);

   private:
    friend class NcclWork;
    c10::intrusive_ptr<NcclWork> finish_capture(c10::intrusive_ptr<NcclWork> work);
    LaunchQueue& queue_;
    std::unique_lock<std::mutex> launch_lock_;  // until the operation has been launched
    const NcclCall& call_;
    const NcclDevice::CurrentDeviceGuard device_;
    const gpu::NativeStream current_;
    gpu::NativeStream stream_ = nullptr;
    gpu::CaptureId capture_ = 0;
    gpu::EventPool::Lease started_;  // none in a capture, or close behind another operation
    // In a capture:
    std::shared_ptr<GraphRegistry::CapturedGraph> graph_;
    GraphReplayMonitor::TrackedOperation tracked_;
  };

  // Ends this communicator here, with all its operations: `why` is their error. The other ranks are
  // told before the library ends, which lets their operations go on without their data. Waits for
  // nobody: that is on a thread apart.
  void abort(const CommError& why);
  // The same, for a thread of the program: returns when the abort hooks have run, and where it
  // `blocks` the library is through; or when each has had its second, and at once in such hooks.
  void abort_and_wait(const CommError& why, bool blocks);
  // The library's communicator is about to end in another way than by end(), if it has not: the
  // others are told as there, with `why`.
  void announce_abort(const CommError& why);
  // The library is about to make another communicator of this one, which ends its operations:
  // `why` is their error, and nobody else but abort_and_wait() ends this one any more. The others
  // are told as by end(). False: it has failed.
  bool release_for_shrink(const CommError& why);
  // Ends it where the other ranks are known to have failed, or to disagree. One load else.
  void abort_if_peer_failed(const std::function<Context()>& context);
  PeerMonitor& peer_monitor() const noexcept { return *peer_monitor_; }
  // Why it has ended, or its kernels have, which is looked at. `context`: of an error of theirs.
  std::optional<CommError> failure(const Context& context);
  // Some call is about to raise the failure, and may when this returns: as abort_and_wait().
  void mark_failure_observed() noexcept;
  bool is_failure_observed() const noexcept { return is_failure_observed_.load(); }

  // An operation that is captured next uses what all others of its kind use: see GraphRegistry. Of
  // the thread that calls operations.
  void serialize_with_graphs() { graphs_->serialize_with_graphs(); }
  // Graphs that may still be launched hold operations of it.
  bool has_live_graphs() noexcept { return graphs_->has_live(); }
  // Some graph has had operations of kernels of ours.
  bool has_been_captured() const noexcept { return kernels_in_graphs_; }
  GraphRegistry& graphs() noexcept { return *graphs_; }

  // False if something is still under way after `limit`.
  bool wait_idle(std::chrono::milliseconds limit);
  bool is_idle();
  // Whether a synchronous operation is under way, whose caller may look at nothing but its output.
  bool has_pending_sync();

  void poll(Clock::time_point now) noexcept override;
  // The same for one work; when it returns, it has ended or its operation goes on.
  void poll_work(NcclWork& work) noexcept;
  bool is_active() noexcept override;

 private:
  using Works = std::vector<c10::intrusive_ptr<NcclWork>>;
  bool is_done(const NcclWork& work) noexcept;
  void complete(NcclWork& work) noexcept;
  size_t count_done() noexcept;
  // The operation whose launch has lasted too long by now.
  std::optional<NcclCall> find_timed_out_launch(Clock::time_point now) const noexcept;
  // When the one that is being launched began, if that was a while ago.
  std::optional<Clock::time_point> find_slow_launch(Clock::time_point now) const noexcept;
  // The one way to the end, as end(). True if it was this reason that ended them.
  bool abort_all(const CommError& why, const NcclWork* timed_out);
  // Those who wait for operations that are under way are told.
  void fail_works(const std::exception_ptr& why, const NcclWork* timed_out);
  // The limit of `call` has passed, once it is known where the other ranks are: false before.
  bool abort_on_timeout(const NcclCall& call, const std::string& text, const NcclWork* timed_out);
  void abort_on_late_replay(const GraphReplayMonitor::LateReplay& late);
  // True if it was that which ended them.
  bool abort_if_kernels_failed(const std::function<Context()>& context);
  void start_polling();
  // Replays may run kernels at any time, which have no work.
  bool has_watched_kernels() const noexcept;
  // Asks the library whether something went wrong behind its calls.
  void abort_on_library_error(const std::function<Context()>& context);
  // This process may have been stopped until `now`: see PeerMonitor::drain_after_suspend(), as that
  // says.
  bool drain_after_suspend(Clock::time_point now) noexcept;
  // What has failed without abort_all() ends as if by it.
  void abort_if_failed();
  // Why a rank that is seen will never answer; nothing while all may. `ask`: takes its time.
  std::optional<CommError> find_exited_rank(const Context& context, bool ask);
  // The kernels in replays, of which nobody knows whether they run, of what that says.
  void set_kernel_warning(const Context& context);

  const std::string name_;
  BufferRegistrations registrations_;  // these two before the communicator, which goes first
  WindowRegistry windows_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<NcclDevice> device_;
  std::shared_ptr<CollectiveKernels> shared_kernels_;
  std::atomic<CollectiveKernels*> kernels_{nullptr};  // the same, for other threads
  std::atomic<bool> kernels_in_graphs_{false};
  const std::shared_ptr<InFlightCounter> in_flight_ = std::make_shared<InFlightCounter>();
  const std::unique_ptr<GraphReplayMonitor> replay_monitor_;
  std::unique_ptr<GraphRegistry> graphs_;
  const FailureCallbacks callbacks_;
  std::atomic<bool> is_failure_observed_{false};
  std::atomic<bool> is_polled_{false};  // false: the watchdog may have let go of it
  std::mutex launch_mutex_;             // guards what is of the calling thread alone: one at a time
  // The launch that is under way, written by the calling thread.
  struct CurrentLaunch {
    std::atomic<OpName> op{};
    std::atomic<std::chrono::milliseconds> timeout{};
    std::atomic<bool> has_own_timeout{};
    std::atomic<uint64_t> sequence{0};
    std::atomic<Clock::time_point> deadline{Clock::time_point{}};  // no time: none is
  } current_launch_;

  const std::shared_ptr<PeerMonitor> peer_monitor_;
  // When that was last called, and when all was read.
  std::atomic<Clock::time_point> last_poll_{Clock::now()}, last_drain_{last_poll_.load()};

  std::mutex abort_mutex_;  // held by whoever decides to end it, or not to any more; guards ended_
  // abort_all() has run: the communicator may have failed without it.
  bool is_aborted_ = false;
  std::shared_future<void> library_aborted_;
  std::atomic<bool> is_released_for_shrink_{false};

  std::mutex mutex_;  // guards all below, and what works say that it does; partner of idle_
  std::condition_variable idle_;
  Works works_in_flight_;
  Clock::time_point next_error_query_{};  // to the library, whether all is well
  std::optional<GraphReplayMonitor::LateReplay> late_replay_;
  // The operation before, outside of captures. Of the calling thread alone.
  StreamMarker last_marker_;
  Clock::time_point last_launch_{};
};

}  // namespace torch::comms::nccl
