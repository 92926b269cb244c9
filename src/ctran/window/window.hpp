#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "ctran/engine/group/engine_group.hpp"
#include "ctran/window/peer_windows.hpp"
#include "ctran/window/rma_operation.hpp"
#include "ctran/window/window_registrations.hpp"

namespace torch::comms::ctran {

class WindowExchange;

// A window: memory of every member of a group, which the other members write without a call of its
// owner.
//
// Order: a member that has seen a peer's signal, or a value that the peer stored, sees everything
// that the peer put before it. A put or signal completes when it has arrived at the target.
//
// Progress: memory that peers on this host map or copy to needs no progress of its owner. For other
// memory the context's progress thread makes progress while the window is open; it sleeps while
// nothing arrives.
//
// Failure: like the calls of the group. An operation that fails fails the group.
//
// Threads: any, except for create() and close().
// Forked children: as for groups.
class TC_API Window {
 public:
  static constexpr size_t kMaxMetadataBytes = 192;

  // The window of one member. Members may have different sizes.
  // Lifetime: `memory` must outlive the window.
  struct LocalWindow {
    Bytes memory = {};
    uint64_t slots = 0;         // number of 64-bit words of the window, zero at first
    std::string metadata = {};  // at most kMaxMetadataBytes; the other members can read it
  };
  // Opens a window. Collective. `name` is for error texts and has static lifetime.
  // Throws: CommError like an operation; kResourceExhausted or kSystem on all members if one member
  // lacks the resources.
  static std::unique_ptr<Window> create(EngineGroup& group, const LocalWindow& local,
                                        std::string_view name,
                                        const CallTimeout& limit = kNoTimeout);
  // Closes the window. Collective. `group` is the one that opened it. Waits that are in flight and
  // can never complete fail with kInvalidArgument, and the group continues.
  // Blocks: until no member writes to this member's memory any more.
  // Throws: like an operation. The window is closed even then. A member on this host that copies to
  // the memory at that moment stops after the MiB that it is copying.
  void close(EngineGroup& group, std::string_view name, const CallTimeout& limit = kNoTimeout);
  // Local. Later writes of peers fail, as after a close() that throws, or go to memory that the
  // peers have mapped.
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Runs an operation to its end.
  // Throws: the error of the operation.
  void run(const RmaOperation& operation);
  // Starts an operation and returns at once. Errors at run time are in the work.
  // Lifetime: `listener` must outlive the operation.
  EngineWork start(const RmaOperation& operation, CompletionListener* listener = nullptr);

  const PeerWindows& peer_windows() const noexcept { return *peer_windows_; }
  // Returns: the memory of a member if this process can load and store it, else nothing.
  // Lifetime: memory of another member lives as long as `owner`.
  Bytes mapped(int rank, std::shared_ptr<const void>& owner) const;

 private:
  Window(std::shared_ptr<GroupState> group, WindowExchange& window_exchange);
  Task* make_task(const RmaOperation& operation);
  void release() noexcept;

  std::shared_ptr<GroupState> group_;
  std::shared_ptr<PeerWindows> peer_windows_;
  WindowRegistrations registrations_;
  std::vector<std::atomic<uint64_t>> awaited_signals_;  // signals waited for so far, by rank
  bool needs_target_progress_;  // the progress thread serves peers while the window is open
  std::atomic<bool> is_open_{true};
};

}  // namespace torch::comms::ctran
