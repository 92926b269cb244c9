#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "transport/nvl/symmetric_memory.hpp"
#include "transport/nvl/unix_allgather.hpp"

namespace torch::comms::ctran {

// Allocates the rest of a team's workspace on all ranks when one rank needs it. A background thread
// of each rank does that rank's part, whatever the calling threads of the rank are doing.
//
// Threads: one at a time, except stop().
class DeferredWorkspace {
 public:
  // Lifetime: `memory` outlives this object, which alone changes it from start() on.
  // Throws: CommError(kResourceExhausted, kSystem).
  DeferredWorkspace(const transport::nvl::RankContext& context,
                    transport::nvl::SymmetricMemory& memory);
  ~DeferredWorkspace();  // waits for what the background thread is doing
  DeferredWorkspace(const DeferredWorkspace&) = delete;
  DeferredWorkspace& operator=(const DeferredWorkspace&) = delete;

  // Returns the address that the other ranks need. start() takes the addresses of all ranks, by
  // rank, and lets the background thread begin.
  // Throws: CommError(kSystem).
  std::string address() const { return all_gather_.address(); }
  void start(const std::vector<std::string>& addresses);

  // Tries to allocate the rest on all ranks. The nth call on this rank is the nth call on every
  // rank. `interrupt_check` is called every 20 ms during the wait, and may end it by an exception.
  // Returns: "", or why the rest is unavailable, the same text on all ranks.
  // Blocks: until the background threads of all ranks have done their parts.
  // Throws: CommError(kPeerFailed) if a rank has ended.
  std::string allocate_collectively(const std::function<void()>& interrupt_check);
  // Ends this rank's part. A waiting allocate_collectively() throws CommError(kAborted) on this
  // rank, and kPeerFailed on other ranks. Does not block.
  // Threads: any.
  void stop() noexcept;

 private:
  struct DeferredAllocation {
    std::string unavailable_reason;
    std::optional<CommError> failure;  // if set, there is no other attempt
  };
  void run();
  DeferredAllocation allocate();
  bool is_requested();

  const transport::nvl::RankContext context_;
  transport::nvl::SymmetricMemory& memory_;
  transport::nvl::UnixAllGather all_gather_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  bool has_started_ = false;
  size_t requested_ = 0;                         // number of attempts
  std::vector<DeferredAllocation> allocations_;  // results of the attempts
  std::thread thread_;
};

}  // namespace torch::comms::ctran
