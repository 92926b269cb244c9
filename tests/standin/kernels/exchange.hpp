#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ctran/kernels/library.hpp"

// What kernels of the stand-in are made of: chunks from rank to rank, through the workspaces that
// processes share, with counters that only grow.
namespace torch::comms::standin {

namespace kernels = ctran::kernels;

inline constexpr size_t kChunkBytes = size_t{256} << 10;

// Of one source, in the workspace of the rank that takes it.
struct Inbox {
  std::atomic<uint64_t> sent, taken;
  alignas(64) std::byte data[kChunkBytes];
};
struct Workspace {
  std::atomic<uint32_t> stopped;
  std::atomic<uint64_t> launches;
  alignas(64) Inbox inboxes[kernels::kMaxRanks];
};

// One launch on one rank. Waits watch the abort word and the launch's limit.
class Exchange {
 public:
  Exchange(const kernels::Team& team, const kernels::Call& call);

  int rank() const noexcept { return team_.rank; }
  int size() const noexcept { return team_.size; }
  // False after a stop, of this launch or one before: nothing more is to be done.
  bool goes_on() noexcept;

  // Sends to `peer` once it has taken what was sent before.
  void send(int peer, const void* data, size_t size_bytes);
  // What `peer` sent next; null after a stop. It is there until taken().
  const std::byte* receive(int peer);
  void taken(int peer);
  // Waits for nobody in particular until the launch is stopped.
  void hang();

 private:
  bool await(const std::function<bool()>& condition, int peer);
  void stop(kernels::Stop why, int waited_for);
  Workspace& workspace(int rank) const { return *static_cast<Workspace*>(team_.workspace[rank]); }
  Inbox& inbox(int owner, int source) const { return workspace(owner).inboxes[source]; }

  const kernels::Team team_;
  const kernels::Call call_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  uint64_t launch_;
};

}  // namespace torch::comms::standin
