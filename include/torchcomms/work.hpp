#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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

constexpr bool isTerminal(WorkStatus status) noexcept { return status >= WorkStatus::COMPLETED; }

// The state machine of a work. Terminal states absorb: a late completion never hides a timeout.
constexpr bool canMove(WorkStatus from, WorkStatus to) noexcept {
  if (isTerminal(from)) return false;
  if (from == WorkStatus::INPROGRESS) return isTerminal(to);
  return to != WorkStatus::NOT_STARTED;
}

class TorchWork;

// Sees one work leave its queue and end, before its hooks do: what a communicator writes of each of
// its operations. Runs on the thread that made the transition, without the work's lock, and must
// not block.
class TC_API WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  virtual void started(TorchWork& work) noexcept = 0;  // unless it had when it was observed
  virtual void ended(TorchWork& work) noexcept = 0;
};

// One issued operation.
//
// Threads: status() and isCompleted() from any thread; poll_once() from one thread at a time.
// Failure: the error is kept and raised by every poll_once(), the first and the tenth.
// Lifetime: may be dropped before completion; the operation finishes all the same.
class TC_API TorchWork : public c10::intrusive_ptr_target {
 public:
  TorchWork();
  TorchWork(const TorchWork&) = delete;
  TorchWork& operator=(const TorchWork&) = delete;
  ~TorchWork() override;

  WorkStatus status() const noexcept { return status_.load(std::memory_order_acquire); }

  // True for COMPLETED alone, not for a failed work. May make progress.
  bool isCompleted() noexcept {
    if (!isTerminal(status())) poll();
    return status() == WorkStatus::COMPLETED;
  }

  // CPU: blocks until the operation ended. GPU: makes the current stream wait, the host goes on.
  // Throws the operation's error.
  virtual void wait() = 0;

  // Blocks the host until the operation ended. Throws CommError(kUnsupported) "waitBlocking not
  // implemented" by default.
  virtual void waitBlocking();

  // Blocks the host for device work that poll_once() only ordered. Nothing to do on CPU.
  virtual void hostSynchronize() {}

  // The limit that this operation runs under; milliseconds::max() where the backend does not say.
  virtual std::chrono::milliseconds getTimeout() const { return std::chrono::milliseconds::max(); }

  // Who sent what a receive from kAnySource took, once it has ended well; else -1.
  virtual int source() const noexcept { return kAnySource; }
  // True if nothing but a poll_once() brings this work to its end, as with works of Python
  // backends. Who only watches it, a future, then has to wait on a thread of its own, beside
  // others' poll_once().
  virtual bool endsByWaitOnly() const noexcept { return false; }

  // True if poll_once() blocks the host although the tensors are on a device, as with those that
  // are staged. Its end is on the device, too: who only watches it need not wait.
  virtual bool waitBlocksHost() const noexcept { return false; }

  // Hooks run in order of registration. Start: on INPROGRESS, at once if already past NOT_STARTED.
  // End: once, on the first terminal status, at once if already there. Wait hooks: at every
  // poll_once() begin and end. A hook runs on the thread that made the transition and must not
  // block.
  void registerWorkStartHook(std::function<void()> hook);
  void registerWorkEndHook(std::function<void()> hook);
  void registerWorkWaitPreHook(std::function<void()> hook);
  void registerWorkWaitPostHook(std::function<void()> hook);

  // By the communicator that hands the work out; lives as long as the work. Of one that has ended
  // already, the end at once. A second one, of a work that comes from another communicator, is told
  // of its end by a hook.
  void observe(std::unique_ptr<WorkObserver> observer);

  // Of a work that has failed, whenever the failure comes to the program: at every poll_once() end,
  // and by meetFailure(); at once if that was before. Hooks as those above.
  void registerWorkMetHook(std::function<void()> hook);
  // For who hands the failure on otherwise than by poll_once(), as futures do. Does nothing where
  // there is none. Any thread.
  void meetFailure() noexcept;

  // The stored failure; null while there is none.
  std::exception_ptr error() const;

 protected:
  // Any thread. True for exactly one caller: the one whose transition happened; hooks run on it.
  bool setStatus(WorkStatus to, std::exception_ptr error = nullptr);

  // COMPLETED, and `future`, which somebody waits for, has `tensors`; the error where it has failed
  // before. Once for a future.
  void markCompleted(const c10::intrusive_ptr<c10::ivalue::Future>& future,
                     const std::vector<at::Tensor>& tensors);

  // Sets the state whatever it was and runs no hook: for works whose state somebody outside owns.
  void forceStatus(WorkStatus to) noexcept;

  // A chance to notice completion without blocking, from isCompleted().
  virtual void poll() noexcept {}

  // Blocks until a terminal status. True if reached within `limit`. max: no limit; throws what the
  // host language interrupts it with, Ctrl-C above all.
  bool waitForTerminal(std::chrono::milliseconds limit);
  void rethrowIfFailed() const;

  void runWaitPreHooks();
  void runWaitPostHooks();

 private:
  struct HookLists;
  HookLists& hookLists();  // creates on first use; mutex_ held
  void runWaitHooks(bool before);

  std::atomic<WorkStatus> status_{WorkStatus::NOT_STARTED};
  std::atomic<bool> has_hooks_{false};
  mutable std::mutex mutex_;  // guards all below; partner of ended_
  bool ending_ = false;  // whoever looks at the end is still called: poll_once() returns behind him
  std::condition_variable ended_;
  std::exception_ptr error_;
  std::unique_ptr<WorkObserver> observer_;
  std::unique_ptr<HookLists> hooks_;
};

using WorkPtr = c10::intrusive_ptr<TorchWork>;

// Already done when it is made. poll_once() and waitBlocking() return at once.
class TC_API TorchWorkCompleted : public TorchWork {
 public:
  TorchWorkCompleted() { setStatus(WorkStatus::COMPLETED); }
  void wait() override;
  void waitBlocking() override { wait(); }
};

// A finished work shared by all synchronous operations, so that the hot path allocates nothing.
TC_API const WorkPtr& completedWork();

// Runs `body` on a thread of its own; its exception is the work's error. Destruction waits for the
// thread.
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
