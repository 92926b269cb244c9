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

// Memory of every member of a group, which the others write without its doing.
//
// Order: whoever has seen a member's signal, or a value that it stored, sees all that this member
// put to it before. A put or signal has ended when it is where it was to go, and not before.
//
// Progress: memory that peers on this host map, or copy to, needs nothing of its owner. For the
// rest the family's thread serves while the window is open: asleep until something comes.
//
// Failure: as for the calls of the group, which an operation that fails ends.
//
// Threads: all methods but create() and close_queue(), any thread. Forked children: as for groups.
class TC_API Window {
 public:
  static constexpr size_t kMaxMetadataBytes = 192;

  // What a member brings. `memory` must outlive the window. Members may bring different sizes.
  struct LocalWindow {
    Bytes memory = {};
    uint64_t slots = 0;         // 64-bit words beside it, zero at first
    std::string metadata = {};  // up to kMaxMetadataBytes, for the others to read
  };
  // Collective. `name` is for errors and lives forever. Throws CommError: what an operation throws;
  // kResourceExhausted, kSystem on all members where one has not the means.
  static std::unique_ptr<Window> create(EngineGroup& group, const LocalWindow& offer,
                                        std::string_view name,
                                        const CallTimeout& limit = kNoTimeout);
  // Collective: returns when nobody writes to this member's memory any more. `group` is the one
  // that opened it. Throws as an operation; the window is then closed all the same, and a member on
  // this host that copies to the memory at that moment ends with the MiB that it is at. Waits that
  // are still in flight, and will be in vain, end with kInvalidArgument, and the group goes on.
  void close(EngineGroup& group, std::string_view name, const CallTimeout& limit = kNoTimeout);
  // Local: what others still write fails there, as after a close_queue() that throws, or goes into
  // memory that they have mapped.
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Runs to its end. Throws its error.
  void run(const RmaOperation& operation);
  // Returns at once; the world's errors are in the work. `listener` outlives the operation.
  EngineWork start(const RmaOperation& operation, CompletionListener* listener = nullptr);

  const PeerWindows& peer_windows() const noexcept { return *peer_windows_; }
  // The memory of a member where loads and stores reach it, else nothing. Of others it lives as
  // long as `keeper`.
  Bytes mapped(int rank, std::shared_ptr<const void>& keeper) const;

 private:
  Window(std::shared_ptr<GroupState> group, WindowExchange& opening);
  Task* make_task(const RmaOperation& operation);
  void release() noexcept;

  std::shared_ptr<GroupState> group_;
  std::shared_ptr<PeerWindows> peer_windows_;
  WindowRegistrations registrations_;
  std::vector<std::atomic<uint64_t>> awaited_signals_;  // signals, by rank
  bool needs_target_progress_;                          // the family's thread is there for peers
  std::atomic<bool> is_open_{true};
};

}  // namespace torch::comms::ctran
