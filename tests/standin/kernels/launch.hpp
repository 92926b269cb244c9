#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ctran/kernels/protocol/layout.hpp"
#include "ctran/kernels/windows/window_layout.hpp"

// What kernels of the stand-in are made of: chunks from rank to rank, through the workspaces that
// processes share, with counters that only grow.
namespace torch::comms::standin {

namespace kernels = ctran::kernels;

inline constexpr size_t kChunkBytes = size_t{256} << 10;

// Of one source, in the workspace of the rank that takes it.
struct Inbox {
  std::atomic<uint64_t> sent, taken;
  size_t whole_bytes;  // of the message that the chunk is part of
  bool asks;           // it is no chunk, but asks for the place of the message
  char* place;         // the answer
  uint64_t begun;      // of a collective: what its sender tells of the launch
  alignas(64) std::byte data[kChunkBytes];
};
struct Workspace {
  kernels::WorkspaceHeader
      header;  // of it what says why to stop, as users' kernels look at it, too
  std::atomic<uint64_t> launches, exchanges;
  alignas(64) Inbox inboxes[kernels::kMaxRanks];
  Inbox messages[kernels::kMaxRanks];
  kernels::WindowSyncWords regions;
};

// One launch on one rank. Waits watch the abort word, the words of peers that this rank has to
// stop, what they have begun, and the launch's limit.
class Launch {
 public:
  // `print`: of a collective, what was called (ctran/kernels/host/call_fingerprint.hpp).
  Launch(const kernels::TeamDescriptor& team, kernels::Collective collective, uint64_t print,
         uint64_t limit_ns);

  const kernels::TeamDescriptor& team() const noexcept { return team_; }
  int rank() const noexcept { return team_.rank; }
  int size() const noexcept { return team_.size; }
  // False after a stop, of this launch or one before: nothing more is to be done. `waited_for`: the
  // rank that this one cannot go on without.
  bool goes_on(int waited_for = -1) noexcept;
  // Waits a moment for that rank; false also where the limit has passed.
  bool waits(int waited_for) noexcept;

  // Sends to `peer` once it has taken what was sent before.
  void send(int peer, const void* data, size_t size_bytes);
  // What `peer` sent next; null after a stop. It is there until popped().
  const std::byte* receive(int peer);
  void taken(int peer);
  // Waits for nobody in particular until the launch is stopped.
  void hang();

  // Where a chunk of a message from `source` to `owner` lies.
  Inbox& message(int owner, int source) const { return workspace(owner).messages[source]; }
  // Until `condition` holds; false after a stop.
  bool await(const std::function<bool()>& condition, int peer);
  // What `owner` keeps for regions, and the number of this launch.
  kernels::WindowSyncWords& regions(int owner) const { return workspace(owner).regions; }
  uint64_t number() const noexcept { return launch_; }
  // What has been called so far, as other ranks have to have it as well.
  uint64_t print() const noexcept { return kernels::fingerprint_in(begun_); }
  // A message from `peer` has the wrong size, or what else they disagree in: both stop.
  void mismatch(int peer, kernels::StopReason why = kernels::StopReason::kSizeMismatch);
  // `peer` has called something else: all stop.
  void other_call(int peer) { stop_all(kernels::StopReason::kCallMismatch, peer); }
  // The counts of this rank are impossible: all stop.
  void refuse_counts() { stop_all(kernels::StopReason::kInvalidCounts, team_.rank); }

 private:
  // Tells the others what this rank has begun.
  void tell(uint64_t print);
  // The first one that is known to have called something else; -1: none.
  int disagreeing() const noexcept;
  void stop(kernels::StopReason why, int waited_for);
  void stop_all(kernels::StopReason why, int waited_for);
  void report(kernels::StopReason why, int peer) const;
  Workspace& workspace(int rank) const { return *static_cast<Workspace*>(team_.workspace[rank]); }
  Inbox& inbox(int owner, int source) const { return workspace(owner).inboxes[source]; }

  const kernels::TeamDescriptor team_;
  const kernels::Collective collective_;
  const uint64_t limit_ns_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  uint64_t launch_ = 0;
  uint64_t begun_ = 0, before_ = 0;  // this rank's word of this launch, and of the one before
  uint32_t gone_ = 0;                // Control::gone, before the last look at what is waited for
};

}  // namespace torch::comms::standin
