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

// From now on; far ahead is never.
inline Deadline deadline_after(std::chrono::milliseconds limit) {
  constexpr std::chrono::hours kNever{24 * 365};
  return limit >= kNever ? Deadline::max() : std::chrono::steady_clock::now() + limit;
}

// Who makes progress: flat combining [Hendler, Incze, Shavit, Tzafrir, SPAA 2010]. One lock;
// whoever waits and gets it moves everything, others wait for what they need or for the lock.
// Nobody holds it asleep: at most one thread sleeps in poll() on the links, the others on a
// condition variable, and an own thread steps in where something is to be done and nobody waits.
// Where nobody came by for a while, that thread sleeps on the links, too: what peers ask of a rank
// that is in no call is answered all the same. Where somebody comes by, but each time for less than
// it takes to look at everything, he is told to.
class ProgressEngine {
 public:
  // What is moved. All with the lock held, but for after_turn().
  class ProgressClient {
   public:
    virtual ~ProgressClient() = default;
    virtual bool progress() noexcept = 0;  // true if anything moved
    virtual bool has_work() noexcept = 0;  // from other threads: progress() would move something
    virtual Deadline next_deadline() const noexcept = 0;
    virtual std::span<transport::Transport* const> links() const noexcept = 0;
    // Something needs turns though nobody waits for it. Looked at after every turn.
    virtual bool needs_background_progress() const noexcept = 0;
    // True if a turn left something that is to be told without the lock.
    virtual bool has_completions() const noexcept = 0;
    virtual void deliver_completions() noexcept = 0;  // without the lock
  };

  // Throws CommError(kResourceExhausted) without a descriptor left.
  ProgressEngine(ProgressClient& job, const transport::WaitPolicy& policy);
  ~ProgressEngine();

  // Returns when `done`, which a turn or another thread sets, or at `limit`. `entered`: after
  // try_enter(), instead of leave().
  void wait(const std::atomic<bool>& done, Deadline limit, bool entered = false);
  // One turn, unless another thread is at it, which then learns of it if `news`.
  void poll_once(bool news);
  // Turns until nothing moves, 16 at most; waits for the lock.
  void drain_incoming() noexcept;
  // Takes the lock from whoever has it, for what is no call.
  void enter() noexcept;
  // Takes it where nobody has it, and nobody sleeps in poll(). False: without it.
  bool try_enter() noexcept;
  void leave() noexcept;
  // A call may be left without anybody who waits for it, and peers may ask: the thread is there
  // from now on. Throws CommError(kResourceExhausted).
  void ensure_thread();
  // Ends the thread. Not from the thread itself.
  void stop() noexcept;
  // In a forked child: the thread is the parent's.
  void abandon_thread() noexcept;

  // With the lock held: others wait for it in enter().
  bool is_contended() const noexcept { return entering_.load(std::memory_order_relaxed) > 0; }
  // With the lock held: a call has ended that others may wait for.
  void notify_completed() noexcept;
  // A call is in flight; one less is. Also something that peers may need turns for at any time.
  void add_call() noexcept { calls_.fetch_add(1, std::memory_order_seq_cst); }
  void remove_call() noexcept { calls_.fetch_sub(1, std::memory_order_seq_cst); }

 private:
  template <class Done>
  void run_progress(const Done& done, Deadline limit, transport::Backoff& pace);
  template <class Done>
  bool sleep(const Done& done, Deadline limit, const transport::Backoff& pace);
  template <class Done>
  void park(const Done& done, Deadline limit);
  bool try_lock() noexcept { return !is_locked_.exchange(true, std::memory_order_seq_cst); }
  void unlock() noexcept;
  void wake_successor() noexcept;
  bool is_thread_needed() const noexcept;
  void arm() noexcept;
  void disarm() noexcept;
  using Events = std::array<pollfd, 4>;  // the bell, and those of all links
  Events events() const noexcept;
  void poll(Events& wanted, Deadline until) noexcept;
  void wake_poller() noexcept;
  void run_thread();
  template <class Done>
  void run_progress_until(const Done& done);
  // Somebody came by. Two at once may count as one.
  void record_visit() noexcept {
    visits_.store(visits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // With the lock.
  void check_links_if_due() noexcept {
    if (is_link_check_due_.load(std::memory_order_relaxed)) check_links();
  }
  void check_links() noexcept;

  ProgressClient& client_;
  transport::WaitPolicy policy_;
  // Of the own thread: callers that compute while it waits are no other program to each other.
  transport::YieldCost thread_yields_;
  base::FileDescriptor wakeup_event_;
  std::atomic<bool> is_locked_{false};   // the lock
  std::atomic<bool> is_polling_{false};  // a thread sleeps on the links, or is about to
  std::atomic<bool> needs_background_progress_{
      false};                        // job_.needs_background_progress() after the last turn
  std::atomic<int> waiting_{0};      // threads in poll_once()
  std::atomic<int> entering_{0};     // threads in enter(): whoever drives lets them in
  std::atomic<int> calls_{0};        // in flight
  std::atomic<uint32_t> visits_{0};  // of threads but the own one
  bool is_armed_ = false,
       is_quiet_ = false;  // with the lock: the links wake us; and had nothing to do
  std::atomic<bool> thread_polls_{false};
  Deadline polls_until_ = Deadline::max();      // of who polls, with the lock
  std::atomic<bool> is_link_check_due_{false};  // nobody was seen to look at everything for a while

  std::mutex mutex_;  // of the two conditions; guards nothing else
  std::condition_variable changed_, thread_needed_;
  std::atomic<int> parked_{0};
  std::atomic<bool> thread_sleeps_{false}, stopping_{false};
  std::once_flag thread_started_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace torch::comms::ctran
