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

#include "backends/nccl/call.hpp"
#include "backends/nccl/device.hpp"
#include "backends/nccl/kept.hpp"
#include "backends/nccl/lane_graphs.hpp"
#include "backends/nccl/open_window.hpp"
#include "backends/nccl/registrations.hpp"
#include "backends/nccl/replays.hpp"
#include "core/abort_hook_runner.hpp"
#include "core/inflight_counter.hpp"
#include "core/watchdog.hpp"
#include "nccl/communicator.hpp"

namespace torch::comms::common {
class PeerMonitor;
}

namespace torch::comms::nccl {

using common::PeerMonitor;
class OwnKernels;
class Work;

// The operations of a communicator in the order of its calls: on whatever streams they are, each
// begins when the one before is done. Watches their deadlines, which count from when they begin,
// and ends them all when one fails.
//
// Threads: slots are of the one that calls operations; the others from any.
class Lane final : public WatchdogClient, public std::enable_shared_from_this<Lane> {
 public:
  struct Alarms {
    // Runs once, on the thread that finds a failure, and must not block: has all else end that ends
    // with the lane, and begins `hooks`. Gets the lane, and why.
    std::function<void(const Lane&, const CommError&)> failure;
    // The same for one of operations that nobody has a work of: gets one that has failed with it.
    std::function<void(TorchWork&)> unseen;
    // Runs for each that a look finds, on the thread that looks.
    std::function<void(const Replays::Event&)> replayed;
    // Of the program: whoever raises the failure does so when they have run.
    std::shared_ptr<const AbortHookRunner> hooks;
  };
  // `others` tell of ranks that have ended or called something else while operations are under way,
  // and of those that a late one waits for.
  Lane(std::string name, std::shared_ptr<Communicator> communicator, std::shared_ptr<Device> device,
       std::unique_ptr<Replays> replays, Alarms alarms, std::unique_ptr<PeerMonitor> others);
  ~Lane() override;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& name() const noexcept { return name_; }
  Communicator& communicator() const noexcept { return *communicator_; }
  const std::shared_ptr<Communicator>& shared_communicator() const noexcept {
    return communicator_;
  }
  Device& device() const noexcept { return *device_; }
  const std::shared_ptr<InFlightCounter>& flight() const noexcept { return flight_; }
  // Of the thread that calls operations.
  Registrations& registrations() noexcept { return registrations_; }
  OpenWindows& windows() noexcept { return windows_; }
  Replays& replays() const noexcept { return *replays_; }
  // Has kernels that run some operations, which end with the others. They go with this lane, or
  // with the last of the graphs that have them. `apart`: none may run beside another one, see
  // LaneGraphs. Of the same thread; once.
  void use(std::shared_ptr<OwnKernels> kernels, bool apart);

  // The stream for an operation, ready for it: behind the operation before, and behind what the
  // current stream has where it is another. While it lives, the launch has the call's limit, too:
  // the library may wait for other ranks in it.
  class Slot {
   public:
    struct Where {
      bool on_current_stream;
      std::optional<bool> high_priority =
          {};  // of the own stream; nothing: as the communicator has
    };
    Slot(Lane& lane, const Call& call, const Where& where);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    gpu::NativeStream stream() const noexcept { return stream_; }
    // What torch works on in this thread.
    gpu::NativeStream current() const noexcept { return current_; }
    // The operation has been launched. `keep` lives until it is done.
    c10::intrusive_ptr<Work> end(Kept keep);

   private:
    friend class Work;
    c10::intrusive_ptr<Work> captured(c10::intrusive_ptr<Work> work);
    Lane& lane_;
    std::unique_lock<std::mutex> alone_;  // until the operation has been launched
    const Call& call_;
    const Device::CurrentDeviceGuard device_;
    const gpu::NativeStream current_;
    gpu::NativeStream stream_ = nullptr;
    gpu::CaptureId capture_ = 0;
    gpu::EventPool::Lease started_;  // none in a capture, or close behind another operation
    // In a capture:
    std::shared_ptr<LaneGraphs::Graph> graph_;
    Replays::Begun begun_;
  };

  // Ends this communicator here, with all its operations: `why` is their error. The other ranks are
  // told before the library ends, which lets their operations go on without their data. Waits for
  // nobody: that is on a thread apart.
  void end(const CommError& why);
  // The same, for a thread of the program: returns when the abort hooks have run, and where it
  // `blocks` the library is through; or when each has had its second, and at once in such hooks.
  void fail(const CommError& why, bool blocks);
  // The library's communicator is about to end in another way than by end(), if it has not: the
  // others are told as there, with `why`.
  void tell_of_end(const CommError& why);
  // The library is about to make another communicator of this one, which ends its operations:
  // `why` is their error, and nobody else but set_error() ends this one any more. The others are
  // told as by end(). False: it has failed.
  bool hand_over(const CommError& why);
  // Ends it where the other ranks are known to have failed, or to disagree. One load else.
  void end_if_told(const std::function<Context()>& context);
  PeerMonitor& others() const noexcept { return *others_; }
  // Why it has ended, or its kernels have, which is looked at. `context`: of an error of theirs.
  std::optional<CommError> failure(const Context& context);
  // Some call is about to raise the failure, and may when this returns: as set_error().
  void meet_failure() noexcept;
  bool is_failure_met() const noexcept { return met_.load(); }

  // An operation that is captured next uses what all others of its kind use: see LaneGraphs. Of the
  // thread that calls operations.
  void keep_graphs_apart() { graphs_->keep_apart(); }
  // Graphs that may still be launched hold operations of it.
  bool is_in_graphs() noexcept { return graphs_->any(); }
  // Some graph has had operations of kernels of ours.
  bool has_been_captured() const noexcept { return kernels_in_graphs_; }
  LaneGraphs& graphs() noexcept { return *graphs_; }

  // False if something is still under way after `limit`.
  bool wait_idle(std::chrono::milliseconds limit);
  bool is_idle();
  // Whether a synchronous operation is under way, whose caller may look at nothing but its output.
  bool is_owed();

  void poll(Clock::time_point now) noexcept override;
  // The same for one work; when it returns, it has ended or its operation goes on.
  void look_at(Work& work) noexcept;
  bool is_active() noexcept override;

 private:
  using Works = std::vector<c10::intrusive_ptr<Work>>;
  bool has_ended(const Work& work) noexcept;
  void settle(Work& work) noexcept;
  size_t count_ended() noexcept;
  // The operation whose launch has lasted too long by now.
  std::optional<Call> late_launch(Clock::time_point now) const noexcept;
  // When the one that is being launched began, if that was a while ago.
  std::optional<Clock::time_point> slow_launch(Clock::time_point now) const noexcept;
  // The one way to the end, as end(). True if it was this reason that ended them.
  bool end_all(const CommError& why, const Work* timed_out);
  // Those who wait for operations that are under way are told.
  void end_works(const std::exception_ptr& why, const Work* timed_out);
  // The limit of `call` has passed, once it is known where the other ranks are: false before.
  bool end_late(const Call& call, const std::string& text, const Work* timed_out);
  void end_all_for(const Replays::Late& late);
  // True if it was that which ended them.
  bool end_if_kernels_stopped(const std::function<Context()>& context);
  void begin_watch();
  // Replays may run kernels at any time, which have no work.
  bool watches_kernels() const noexcept;
  // Asks the library whether something went wrong behind its calls.
  void end_if_wrong(const std::function<Context()>& context);
  // This process may have been stopped until `now`: see PeerMonitor::catch_up(), as that says.
  bool catch_up(Clock::time_point now) noexcept;
  // What has failed without end_all() ends as if by it.
  void end_if_failed();
  // Why a rank that is seen will never answer; nothing while all may. `ask`: takes its time.
  std::optional<CommError> lost_rank(const Context& context, bool ask);
  // The kernels in replays, of which nobody knows whether they run, of what that says.
  void warn_kernels(const Context& context);

  const std::string name_;
  Registrations registrations_;  // these two before the communicator, which goes first
  OpenWindows windows_;
  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Device> device_;
  std::shared_ptr<OwnKernels> own_kernels_;
  std::atomic<OwnKernels*> kernels_{nullptr};  // the same, for other threads
  std::atomic<bool> kernels_in_graphs_{false};
  const std::shared_ptr<InFlightCounter> flight_ = std::make_shared<InFlightCounter>();
  const std::unique_ptr<Replays> replays_;
  std::unique_ptr<LaneGraphs> graphs_;
  const Alarms alarms_;
  std::atomic<bool> met_{false};
  std::atomic<bool> watched_{false};  // false: the watchdog may have let go of it
  std::mutex launching_alone_;        // guards what is of the calling thread alone: one at a time
  // The launch that is under way, written by the calling thread.
  struct Launching {
    std::atomic<OpName> op{};
    std::atomic<std::chrono::milliseconds> limit{};
    std::atomic<bool> limit_is_own{};
    std::atomic<uint64_t> number{0};
    std::atomic<Clock::time_point> until{Clock::time_point{}};  // no time: none is
  } launching_;

  const std::shared_ptr<PeerMonitor> others_;
  // When that was last called, and when all was read.
  std::atomic<Clock::time_point> awake_{Clock::now()}, caught_up_{awake_.load()};

  std::mutex ending_;  // held by whoever decides to end it, or not to any more; guards ended_
  // end_all() has run: the communicator may have failed without it.
  bool ended_ = false;
  std::shared_future<void> library_ended_;
  std::atomic<bool> handed_over_{false};

  std::mutex mutex_;  // guards all below, and what works say that it does; partner of idle_
  std::condition_variable idle_;
  Works under_way_;
  Clock::time_point next_question_{};  // to the library, whether all is well
  std::optional<Replays::Late> late_replay_;
  // The operation before, outside of captures. Of the calling thread alone.
  Mark last_;
  Clock::time_point last_launch_{};
};

}  // namespace torch::comms::nccl
