#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torchcomms/types.hpp>

namespace c10::ivalue {
struct Future;
}

namespace torch::comms {

// Returns: true for COMPLETED, TIMEDOUT and ERROR.
constexpr bool isTerminal(WorkStatus status) noexcept { return status >= WorkStatus::COMPLETED; }

// Returns: whether a work may move between these states. A terminal state never changes, so a late
// completion never hides a timeout.
constexpr bool canMove(WorkStatus from, WorkStatus to) noexcept {
  if (isTerminal(from)) return false;
  if (from == WorkStatus::INPROGRESS) return isTerminal(to);
  return to != WorkStatus::NOT_STARTED;
}

class TorchWork;

// Is called when one work starts and ends, before the hooks of the work run. The communicator
// records its operations this way.
// Threads: runs on the thread that made the transition, without the work's lock, and must not block
// or wait for the work.
class TC_API WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  virtual void started(TorchWork& work) noexcept = 0;  // not called if it started before observe()
  virtual void ended(TorchWork& work) noexcept = 0;
};

// The handle of one issued operation. It keeps the error of a failed operation, and every wait()
// throws it, not only the first.
// Lifetime: the caller may drop it before completion; the operation finishes all the same.
// Threads: status() and isCompleted() may run on any thread; wait() on one thread at a time.
class TC_API TorchWork : public c10::intrusive_ptr_target {
 public:
  TorchWork();
  TorchWork(const TorchWork&) = delete;
  TorchWork& operator=(const TorchWork&) = delete;
  ~TorchWork() override;

  WorkStatus status() const noexcept { return status_.load(std::memory_order_acquire); }

  // Returns: true only for COMPLETED, not for a failed work. The call may make progress.
  bool isCompleted() noexcept {
    if (!isTerminal(status())) poll();
    return status() == WorkStatus::COMPLETED;
  }

  // Waits for the operation.
  // Blocks: on CPU, until the operation and its end hooks have ended. On GPU it only makes the
  // current stream wait, and the host continues; see waitBlocksHost().
  // Throws: the error of the operation; the exception of a wait hook; the exception with which the
  // host language interrupts the wait, such as Ctrl-C.
  virtual void wait() = 0;

  // Waits on the host until the operation has ended.
  // Throws: CommError(kUnsupported) "waitBlocking not implemented" unless the class overrides it.
  virtual void waitBlocking();

  // Blocks the host until the device work that wait() only ordered has finished. It does nothing on
  // CPU.
  virtual void hostSynchronize() {}

  // Returns: the timeout of this operation; milliseconds::max() if the backend does not report it.
  virtual std::chrono::milliseconds getTimeout() const { return std::chrono::milliseconds::max(); }

  // Returns: the rank that sent the message which a receive from kAnySource got, once the work is
  // COMPLETED; otherwise -1.
  virtual int source() const noexcept { return kAnySource; }
  // Returns: true if only a wait() brings this work to its end, as with works of Python backends. A
  // future of such a work needs a thread that calls wait(), also while other threads wait.
  virtual bool endsByWaitOnly() const noexcept { return false; }

  // Returns: true if wait() blocks the host although the tensors are on a device, as with staged
  // operations. A future of such a work completes when the operation has ended on the device.
  virtual bool waitBlocksHost() const noexcept { return false; }

  // Hooks run in order of registration. Start hooks run when the work leaves NOT_STARTED, and at
  // once if it has left that state already. End hooks run once, on the first terminal status, and
  // at once if the work has ended already. Wait hooks run at the begin and end of every wait(), the
  // latter before wait() throws the error of the work.
  // Throws: an exception of a start or end hook is logged, but leaves the registration if the hook
  // runs at once. An exception of a wait hook leaves wait().
  // Threads: start and end hooks run on the thread that made the transition. They must not block or
  // wait for this work, because wait() returns after the end hooks.
  void registerWorkStartHook(std::function<void()> hook);
  void registerWorkEndHook(std::function<void()> hook);
  void registerWorkWaitPreHook(std::function<void()> hook);
  void registerWorkWaitPostHook(std::function<void()> hook);

  // Attaches the observer of the communicator that returns this work; the work owns it. If the work
  // has ended already, ended() runs at once. Another communicator may return the same work; its
  // observer is called for the end only.
  void observe(std::unique_ptr<WorkObserver> observer);

  // Registers a hook that runs each time the program observes the failure of this work: at the end
  // of every wait(), and in meetFailure(). It runs at once if meetFailure() has marked the failure
  // before. Call it only for a failed work: the hook also runs at the end of a wait() that
  // succeeds.
  void registerWorkMetHook(std::function<void()> hook);
  // Marks the failure as observed by the program, for code that reports it otherwise than by
  // wait(), such as futures. It does nothing if the work has not failed. An exception of a hook is
  // logged.
  // Threads: any.
  void meetFailure() noexcept;

  // Returns: the stored error; null if there is none.
  std::exception_ptr error() const;

 protected:
  // Moves the work to the state `to` with `error`, if canMove() allows it, and runs its hooks.
  // Returns: true if this call made the transition; the hooks have then run on this thread. Of
  // several calls that end the work, exactly one returns true.
  // Threads: any.
  bool setStatus(WorkStatus to, std::exception_ptr error = nullptr);

  // Sets the work to COMPLETED and completes `future` with `tensors`; if the work has failed
  // before, the future gets its error. Call it once for a future.
  void markCompleted(const c10::intrusive_ptr<c10::ivalue::Future>& future,
                     const std::vector<at::Tensor>& tensors);

  // Sets the status unconditionally and runs no hook, for works whose state is kept outside of this
  // class.
  void forceStatus(WorkStatus to) noexcept;

  // Checks for completion without blocking; isCompleted() calls it.
  virtual void poll() noexcept {}

  // Waits for a terminal status, and until the observer and the end hooks have run.
  // Returns: true if both happened within `limit`; milliseconds::max() means no timeout.
  // Throws: CommError(kForked) if a parent process has started the work and it has not ended,
  // because no thread of this process would end it. Without a timeout, also the exception with
  // which the host language interrupts the wait, such as Ctrl-C. A wait with a timeout is not
  // interrupted.
  bool waitForTerminal(std::chrono::milliseconds limit);
  // Throws: the stored error, if there is one.
  void rethrowIfFailed() const;

  void runWaitPreHooks();
  void runWaitPostHooks();

 private:
  struct HookLists;
  HookLists& hookLists();  // creates them on first use; the caller holds mutex_
  void runWaitHooks(bool before);

  std::atomic<WorkStatus> status_{WorkStatus::NOT_STARTED};
  std::atomic<bool> has_hooks_{false};
  // Identifies the process that created the work. Its 32 bits fit before the mutex, so the class
  // keeps its size.
  const uint32_t fork_generation_;
  mutable std::mutex mutex_;  // guards all below; partner of ended_
  bool ending_ = false;       // the observer and the end hooks are still running
  std::condition_variable ended_;
  std::exception_ptr error_;
  std::unique_ptr<WorkObserver> observer_;
  std::unique_ptr<HookLists> hooks_;
};

using WorkPtr = c10::intrusive_ptr<TorchWork>;

// A work that is complete when it is created. wait() and waitBlocking() return at once.
class TC_API TorchWorkCompleted : public TorchWork {
 public:
  TorchWorkCompleted() { setStatus(WorkStatus::COMPLETED); }
  void wait() override;
  void waitBlocking() override { wait(); }
};

// Returns: one finished work that synchronous operations share, so that the hot path allocates
// nothing. Do not register wait hooks with it: they would run for every operation.
TC_API const WorkPtr& completedWork();

// Runs `body` on a thread of its own; an exception of `body` is the work's error.
// Lifetime: the destructor blocks until the thread has ended. It must not run on that thread, for
// example by an end hook that drops the last reference.
class TC_API TorchWorkThread : public TorchWork {
 public:
  explicit TorchWorkThread(std::function<void()> body);
  ~TorchWorkThread() override;
  void wait() override;
  void waitBlocking() override { wait(); }

 private:
  std::thread thread_;
};

}  // namespace torch::comms
