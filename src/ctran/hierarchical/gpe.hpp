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

// The GPE, the progress engine of a GPU's streams. A host thread executes, among the ranks of a
// rail, the commands that kernels post to a ring in pinned memory. The stream contains only kernels
// and copies for this, so a captured graph can be replayed.
//
// Waiting: while launched commands are outstanding, the thread polls the ring as WaitPolicy says,
// and then every 50 us. Once a launch was captured, no call announces the commands of replays: the
// thread then polls every 200 us even if nothing is outstanding. Otherwise it sleeps.
//
// Failure: a command that fails stops the ring of this rank with its error. The waiting kernels
// exit, their outputs are poisoned, and later commands are not executed.
//
// Threads: post(), wait() and poison_output() one at a time; the other methods from any thread.
class Gpe {
 public:
  struct Options {
    KernelLibrary library;
    std::shared_ptr<const gpu::Runtime> runtime;
    std::unique_ptr<EngineGroup> rail;           // null: this rank is on no rail and posts nothing
    std::vector<int> ranks;                      // the rail's members, as ranks of the communicator
    const kernels::KernelControl* team_control;  // see kernels::HostRingCall; may be null
    size_t staging_bytes;                        // bytes of pinned memory
    int polling_ranks;                 // ranks of this host that may poll at the same time
    std::function<void()> on_failure;  // called once, on the GPE's thread, after failure() is set
  };
  // The caller has set the device.
  // Throws: CommError(kResourceExhausted, kVendor).
  explicit Gpe(Options options);
  // No kernel that was launched with this object may be running.
  ~Gpe();
  Gpe(const Gpe&) = delete;
  Gpe& operator=(const Gpe&) = delete;

  // Returns: pinned memory, which the device sees at the same address.
  std::byte* staging() const noexcept { return staging_; }
  size_t staging_bytes() const noexcept { return options_.staging_bytes; }

  // Enqueue on a stream: a command; a wait for the oldest command that was not waited for yet; and
  // the poisoning of an output of `dtype` if the wait was stopped.
  // Throws: CommError(kVendor).
  void post(const GpeCommand& command, gpu::NativeStream stream);
  void wait(uint64_t limit_ns, gpu::NativeStream stream);
  void poison_output(void* output, size_t size_bytes, Dtype dtype, gpu::NativeStream stream);

  // Returns: why the host thread has failed, with the culprits as ranks of the communicator;
  // nothing if it has not.
  std::optional<CommError> failure() const;
  // Returns: why a waiting kernel has stopped, and in `command` at which command; nothing if none
  // has.
  std::optional<kernels::StopReason> stop_reason(uint64_t& command) const noexcept;
  // Stops the running command and all later launches, and aborts the rail with `why`; its members
  // receive it as EngineGroup::abort() says. `why` has ranks of the communicator.
  // Blocks: never.
  void abort(const CommError& why) noexcept;
  // Stops like abort() and releases the rail.
  // Blocks: until a running call of the engine has been aborted, a moment.
  void close() noexcept;

 private:
  void run() noexcept;
  void execute_all() noexcept;
  // Requires mutex_. Waiting kernels exit once the thread no longer uses their memory.
  void stop() noexcept;
  void execute(const GpeCommand& command);
  void fail(const CommError& error) noexcept;
  // Conversions between ranks of the rail and of the communicator. to_rail_ranks() drops culprits
  // that are not on the rail.
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
  std::atomic<bool> is_busy_{false};   // the thread executes a command
  std::atomic<uint64_t> launched_{0};  // posts outside of a capture

  mutable std::mutex mutex_;  // guards failure_ and the release of options_.rail; used with wake_
  std::condition_variable wake_;
  std::optional<CommError> failure_;
  std::thread thread_;
};

}  // namespace torch::comms::ctran
