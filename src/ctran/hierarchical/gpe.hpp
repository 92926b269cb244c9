#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "ctran/engine/group/engine_group.hpp"
#include "ctran/hierarchical/gpe_command.hpp"
#include "ctran/team/kernel_library.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::ctran {

// The progress engine of a GPU's streams: a thread of the host that carries out, among the ranks of
// a rail, what kernels ask for by way of a ring of commands. Nothing of it is an entry in a graph
// but kernels and copies, so it goes with each replay.
//
// Waiting: while commands that were launched are still to come, the thread looks at the ring as
// WaitPolicy says, and between sleeps of 50 us. Once a launch was captured, nobody tells of the
// commands of replays: then it looks every 200 us also while there is nothing to do. Else it
// sleeps.
//
// Failure: a command that fails ends the ring here, with its error: kernels leave, what they are to
// write is sealed, later commands are not begun.
//
// Threads: post(), wait(), poison_output() one at a time; the others: any.
class Gpe {
 public:
  struct Options {
    KernelLibrary library;
    std::shared_ptr<const gpu::Runtime> runtime;
    std::unique_ptr<EngineGroup> rail;           // null: this rank is on none, and posts nothing
    std::vector<int> ranks;                      // of the rail, as the communicator counts them
    const kernels::KernelControl* team_control;  // see kernels::HostRingCall; null: none
    size_t staging_bytes;                        // of pinned memory
    int polling_ranks;                           // of this host, that may wait beside each other
    std::function<void()> on_failure;            // once, on the thread, after failure() is set
  };
  // The device is current. Throws CommError: kResourceExhausted, kVendor.
  explicit Gpe(Options options);
  // Nothing that was launched may run any more.
  ~Gpe();
  Gpe(const Gpe&) = delete;
  Gpe& operator=(const Gpe&) = delete;

  // Pinned, and seen by the device at the same address.
  std::byte* staging() const noexcept { return staging_; }
  size_t staging_bytes() const noexcept { return options_.staging_bytes; }

  // Enqueue: the command; a wait for the oldest that was not awaited; and what a stop does to an
  // output, whose dtype is `dtype`. Throw CommError(kVendor).
  void post(const GpeCommand& command, gpu::NativeStream stream);
  void wait(uint64_t limit_ns, gpu::NativeStream stream);
  void poison_output(void* output, size_t size_bytes, Dtype dtype, gpu::NativeStream stream);

  // Why the host's part has ended, with the culprit's rank; nothing while all is well.
  std::optional<CommError> failure() const;
  // Whether the device's part has stopped, and at which command.
  std::optional<kernels::StopReason> stop_reason(uint64_t& command) const noexcept;
  // Ends what runs, and what is launched later, and tells the rail why: its ranks get that as
  // Group::abort() says. `why` counts ranks as the communicator does. Never waits.
  void abort(const CommError& why) noexcept;
  // The same, and lets go of the rail. Waits until a call of the engine has ended, a moment.
  void close() noexcept;

 private:
  void run() noexcept;
  void execute_all() noexcept;
  // Under the lock. Kernels leave when the thread is through with their memory.
  void stop() noexcept;
  void execute(const GpeCommand& command);
  void fail(const CommError& error) noexcept;
  // The ranks of a rail as the communicator counts them, and back, without those on no rail.
  int communicator_rank(int rank) const { return options_.ranks[static_cast<size_t>(rank)]; }
  CommError to_rail_ranks(const CommError& error) const;
  void sleep(uint64_t next);
  kernels::HostRingCall make_call() const;
  void check(int code) const;

  Options options_;
  kernels::HostRing* ring_ = nullptr;
  kernels::KernelControl* control_ = nullptr;
  std::byte* staging_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> captured_{false};
  std::atomic<bool> is_busy_{false};   // with a command
  std::atomic<uint64_t> launched_{0};  // posts outside of captures

  mutable std::mutex mutex_;  // guards failure_, and the rail against its end; partner of wake_
  std::condition_variable wake_;
  std::optional<CommError> failure_;
  std::thread thread_;
};

}  // namespace torch::comms::ctran
