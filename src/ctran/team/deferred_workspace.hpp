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

// The rest of a team's workspace, which comes when one rank wants it, whatever the threads of the
// others that call operations are doing: a thread of each does its part.
//
// Threads: one, but for abort_for_reconfigure().
class DeferredWorkspace {
 public:
  // Outlived by `memory`, which it alone changes from start() on. Throws
  // CommError(kResourceExhausted, kSystem).
  DeferredWorkspace(const transport::nvl::RankContext& seat,
                    transport::nvl::SymmetricMemory& memory);
  ~DeferredWorkspace();  // waits for what it does at the moment
  DeferredWorkspace(const DeferredWorkspace&) = delete;
  DeferredWorkspace& operator=(const DeferredWorkspace&) = delete;

  // What the other ranks have to know, and what they have said, by rank. Throws CommError(kSystem).
  std::string address() const { return all_gather_.address(); }
  void start(const std::vector<std::string>& addresses);

  // Tries it: for the nth time here is for the nth time everywhere. "", or why it does not come,
  // the same on all ranks. Throws CommError(kPeerFailed) where a rank has ended; `look` is called
  // now and then while it waits, and may end that by what it throws.
  std::string allocate_collectively(const std::function<void()>& look);
  // This rank has no part in it any more: a allocate_collectively() that waits throws
  // CommError(kAborted), those of other ranks kPeerFailed. Waits for nobody. Any thread.
  void stop() noexcept;

 private:
  struct DeferredAllocation {
    std::string unavailable_reason;
    std::optional<CommError> failure;  // there will be no other attempt
  };
  void run();
  DeferredAllocation allocate();
  bool is_requested();

  const transport::nvl::RankContext seat_;
  transport::nvl::SymmetricMemory& memory_;
  transport::nvl::UnixAllGather all_gather_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  bool has_started_ = false;
  size_t requested_ = 0;                         // attempts
  std::vector<DeferredAllocation> allocations_;  // of all attempts
  std::thread thread_;
};

}  // namespace torch::comms::ctran
