#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/failure.hpp"
#include "backends/nccl/table.hpp"

namespace torch::comms::nccl {

using Clock = std::chrono::steady_clock;

// One communicator of the library.
//
// The library's calls may return before they are done ("in progress"); the methods here wait for
// them, and end early on abort() and at their deadline. One thread at a time is in the library.
//
// Threads: one at a time, except abort(), failure() and check_async(): any.
// Failure: CommError; kVendor with the library's own text, kPeerFailed where it says so.
class Communicator {
 public:
  // Connects with the others of `id`; `config` is borrowed for the call. Throws CommError with
  // `context`, kTimeout at `deadline`.
  Communicator(std::shared_ptr<const Table> library, int size, int rank, const std::string& id,
               abi::Config config, Clock::time_point deadline, Context context);
  // Not connected any more with what it can: aborts what is still there.
  ~Communicator();

  static std::string make_id(const Table& library, const Context& context);

  const Table& library() const noexcept { return *library_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  abi::Comm handle() const noexcept { return comm_; }

  // Collective over all ranks; `color` kNoColor gives null. `key` orders the ranks, `size` is how
  // many have that color.
  std::shared_ptr<Communicator> split(int color, int key, int rank, int size, abi::Config config,
                                      Clock::time_point deadline, const Context& context);

  // One or several calls of the library, as one group: `body` returns the first result that is no
  // success.
  using Body = std::function<abi::Result(const Table&, abi::Comm)>;
  void group(const Body& body, Clock::time_point deadline, const Context& context);
  // A single call that may not be part of a group.
  void call(const Body& body, Clock::time_point deadline, const Context& context);

  // What went wrong behind the calls since the last look; nothing while all is well.
  std::exception_ptr check_async(const Context& context) noexcept;

  // Ends all operations on this rank, and all calls that are under way; `why` is what they throw.
  // Returns when the library is through.
  void abort(const CommError& why) noexcept;
  Failure& failure() noexcept { return failure_; }

  // Tells the others that this rank leaves in good order.
  void finalize(Clock::time_point deadline, const Context& context);

 private:
  Communicator(std::shared_ptr<const Table> library, int size, int rank);
  using Lock = std::unique_lock<std::timed_mutex>;
  Lock enter();
  // Waits while `result` is "in progress"; throws for every other but success.
  void settle(Lock& lock, abi::Result result, Clock::time_point deadline, const Context& context);
  [[noreturn]] void fail(abi::Result result, const Context& context) const;

  const std::shared_ptr<const Table> library_;
  const int size_, rank_;
  std::timed_mutex mutex_;  // guards the library's state, and comm_; partner of aborted_
  std::condition_variable_any aborted_;
  abi::Comm comm_ = nullptr;  // null when it was never made, or is gone
  Failure failure_;
};

}  // namespace torch::comms::nccl
