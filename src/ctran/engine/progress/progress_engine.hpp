#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "base/os/handles.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

using transport::Deadline;

// Returns the deadline `limit` from now. A limit of a year or more means no deadline.
inline Deadline deadline_after(std::chrono::milliseconds limit) {
  constexpr std::chrono::hours kNever{24 * 365};
  return limit >= kNever ? Deadline::max() : std::chrono::steady_clock::now() + limit;
}

// Decides which thread makes progress, by flat combining [Hendler, Incze, Shavit, Tzafrir, SPAA
// 2010]. There is one lock. A waiting thread that gets the lock moves all calls; the other threads
// wait for their own call or for the lock.
//
// No thread sleeps with the lock. At most one thread sleeps in poll() on the links, the others on a
// condition variable. The progress thread works if there is work and no caller waits.
//
// If no caller has used the engine for a while, the progress thread sleeps on the links, too. So
// requests of peers are answered even if this rank is in no call. Callers may come often but leave
// before the links have been checked completely. The progress thread then makes the next caller
// check them.
class ProgressEngine {
 public:
  // The engine whose calls are moved. All methods run with the lock held, except
  // deliver_completions().
  class ProgressClient {
   public:
    virtual ~ProgressClient() = default;
    virtual bool progress() noexcept = 0;  // returns true if anything moved
    // Returns true if progress() would move something that another thread has left.
    virtual bool has_work() noexcept = 0;
    virtual Deadline next_deadline() const noexcept = 0;
    virtual std::span<transport::Transport* const> links() const noexcept = 0;
    // Returns true if the links need progress although no caller waits. Called when the lock is
    // released.
    virtual bool needs_background_progress() const noexcept = 0;
    // Returns true if progress() left completions to deliver without the lock.
    virtual bool has_completions() const noexcept = 0;
    virtual void deliver_completions() noexcept = 0;  // runs without the lock
  };

  // Throws: CommError(kResourceExhausted) if no descriptor is left.
  ProgressEngine(ProgressClient& client, const transport::WaitPolicy& policy);
  ~ProgressEngine();

  // Makes progress or sleeps until `done` is set by progress() or by another thread, or until
  // `limit`. `entered`: the caller has called try_enter() and does not call leave().
  void wait(const std::atomic<bool>& done, Deadline limit, bool entered = false);
  // Makes progress once, unless another thread holds the lock. `has_new_work`: if a thread sleeps
  // on the links, wakes it, because there is new work.
  void poll_once(bool has_new_work);
  // Makes progress until nothing moves, at most 16 times.
  // Blocks: until it has the lock.
  void drain_incoming() noexcept;
  // Takes the lock for work that is not a call.
  // Blocks: until the thread that makes progress releases the lock.
  void enter() noexcept;
  // Takes the lock if no thread holds it and no thread sleeps in poll().
  // Returns: false without the lock.
  bool try_enter() noexcept;
  void leave() noexcept;
  // Starts the progress thread, if it does not run yet. It is needed when a call may have no
  // waiting caller, and to answer peers.
  // Throws: CommError(kResourceExhausted).
  void ensure_thread();
  // Ends the progress thread. Must not be called on that thread.
  void stop() noexcept;
  // For a forked child: forgets the progress thread, which is the parent's.
  void abandon_thread() noexcept;

  // Returns: whether threads wait in enter(). Requires the lock.
  bool is_contended() const noexcept { return entering_.load(std::memory_order_relaxed) > 0; }
  // Wakes threads that may wait for a call that has completed. Requires the lock.
  void notify_completed() noexcept;
  // Count a call that is in flight. A window that needs this rank's progress for its peers counts
  // as one, too.
  void add_call() noexcept { calls_.fetch_add(1, std::memory_order_seq_cst); }
  void remove_call() noexcept { calls_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  template <class Done>
  void run_progress(const Done& done, Deadline limit, transport::Backoff& backoff);
  template <class Done>
  bool sleep(const Done& done, Deadline limit, const transport::Backoff& backoff);
  template <class Done>
  void park(const Done& done, Deadline limit);
  bool try_lock() noexcept { return !is_locked_.exchange(true, std::memory_order_seq_cst); }
  void unlock() noexcept;
  void wake_successor() noexcept;
  bool is_thread_needed() const noexcept;
  void arm() noexcept;
  void disarm() noexcept;
  using Events = std::array<pollfd, 4>;  // wakeup_event_, and the event of every link
  Events events() const noexcept;
  void poll(Events& wanted, Deadline until) noexcept;
  void wake_poller() noexcept;
  void run_thread();
  template <class Done>
  void run_progress_until(const Done& done);
  // Records that a caller uses the engine. Two concurrent uses may count as one.
  void record_caller_activity() noexcept {
    caller_activity_.store(caller_activity_.load(std::memory_order_relaxed) + 1,
                           std::memory_order_relaxed);
  }
  // Requires the lock.
  void check_links_if_due() noexcept {
    if (is_link_check_due_.load(std::memory_order_relaxed)) check_links();
  }
  void check_links() noexcept;

  ProgressClient& client_;
  transport::WaitPolicy policy_;
  // Cost of a yield on the progress thread. It is separate, so that callers which compute meanwhile
  // do not look like other programs to waiting callers.
  transport::YieldCost thread_yields_;
  base::FileDescriptor wakeup_event_;
  std::atomic<bool> is_locked_{false};   // the lock
  std::atomic<bool> is_polling_{false};  // a thread sleeps on the links or is about to
  // The value of client_.needs_background_progress() at the last unlock().
  std::atomic<bool> needs_background_progress_{false};
  std::atomic<int> waiting_{0};   // threads in wait()
  std::atomic<int> entering_{0};  // threads in enter(); the thread that makes progress lets them in
  std::atomic<int> calls_{0};     // calls in flight
  std::atomic<uint32_t> caller_activity_{0};  // of callers, not of the progress thread
  // With the lock. is_armed_: the links wake this engine. is_quiet_: the links had nothing to do
  // when they were armed.
  bool is_armed_ = false, is_quiet_ = false;
  std::atomic<bool> thread_polls_{false};
  Deadline polls_until_ = Deadline::max();  // of the thread that sleeps in poll(); with the lock
  std::atomic<bool> is_link_check_due_{false};  // no caller has made complete progress for a while

  std::mutex mutex_;  // for the two condition variables; guards no data
  std::condition_variable changed_, thread_needed_;
  std::atomic<int> parked_{0};
  std::atomic<bool> thread_sleeps_{false}, stopping_{false};
  std::once_flag thread_started_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace torch::comms::ctran
