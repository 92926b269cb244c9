#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/device/handle.hpp>

#include "ctran/team/device_team.hpp"
#include "transport/nvl/peer_memory.hpp"

namespace torch::comms::ctran {

// Memory of every rank of a team, on its device, which other ranks write without a call of its
// owner.
//
// Large puts go by a copy engine to memory that this process maps. Small puts, signals and waits
// are kernels of the team. They end with the team's kernels: at their timeout, and when the team is
// aborted. All operations may be captured. The operations of a rank run one after another, like the
// team's launches.
//
// Order: a rank that sees a signal of another rank, or a value that it stored, sees all that this
// rank put to it before.
//
// Threads: as DeviceTeam.
class DeviceWindow {
 public:
  // What a rank contributes, and what the other ranks know of it.
  struct RankMemory {
    std::byte* at = nullptr;  // as this process maps it; null if there are no bytes
    size_t size_bytes = 0;
    uint64_t slots = 0;         // 64-bit words in addition to the memory, zero at first
    std::string metadata = {};  // up to kMaxMetadataBytes
  };
  static constexpr size_t kMaxMetadataBytes = 256;

  // The result of create(): either all ranks have a window, or none.
  struct DeviceWindowResult {
    std::unique_ptr<DeviceWindow> window;
    std::string
        unavailable_reason;  // the same text on all ranks, naming the first rank that cannot
  };
  // Collective. The team's device is current. `decline_reason`: why this rank can have no window;
  // "" if it can.
  // Lifetime: `own.at` is memory of the team's device, and outlives the window.
  // Throws: what `exchange` throws.
  static DeviceWindowResult create(const std::shared_ptr<DeviceTeam>& team, const RankMemory& own,
                                   std::string decline_reason,
                                   const transport::nvl::AllGatherStrings& exchange);

  const RankMemory& rank_memory(int rank) const noexcept {
    return rank_memories_[static_cast<size_t>(rank)];
  }
  // Returns where `rank` maps the address `at`, which is in this rank's memory.
  void* address_on_peer(int rank, const void* at) const noexcept;
  // Whether these bytes are in this rank's memory.
  bool contains(const void* at, size_t size_bytes) const noexcept;
  // Whether no two ranks of one process have the same device. The copies of such ranks may be in
  // one queue, where a copy waits for work that waits for the copy. Equal on all ranks.
  bool has_separate_copy_queues() const noexcept { return has_separate_copy_queues_; }
  // Returns `call` as a window collective, whose output or input is in this window; see
  // kernels::WindowCollectiveCall.
  kernels::WindowCollectiveCall make_collective_call(
      const kernels::KernelCall& call,
      kernels::CopyMethod copy_method = kernels::CopyMethod::kAutomatic) const noexcept;
  const DeviceTeam& team() const noexcept { return *team_; }
  // For users' kernels: what `rank` has for all ranks, and its handle. It is zero at first, and at
  // the address where this process maps it.
  struct DeviceApiMemory {
    torchcomms::device::WindowArea area;
    alignas(256) torchcomms::device::WindowState handle;
  };
  DeviceApiMemory* device_api_memory(int rank) const noexcept {
    return static_cast<DeviceApiMemory*>(signal_memory_->at(rank));
  }
  // Bytes on this rank's device in addition to its memory.
  size_t signal_bytes() const noexcept { return signal_memory_->size_bytes(); }

  // Enqueue one operation each. The caller checks that it is in bounds.
  // Throws: CommError(kVendor).
  void put(int rank, size_t offset_bytes, const void* from, size_t size_bytes,
           gpu::NativeStream stream) const;
  void signal(int rank, gpu::NativeStream stream) const;
  void store(int rank, uint64_t slot, uint64_t value, gpu::NativeStream stream) const;
  void wait_signal(int rank, uint64_t limit_ns, gpu::NativeStream stream) const;
  void wait_slot(uint64_t slot, uint64_t value, kernels::KernelSlotComparison comparison,
                 uint64_t limit_ns, gpu::NativeStream stream) const;

 private:
  explicit DeviceWindow(std::shared_ptr<DeviceTeam> team)
      : team_(std::move(team)), window_id_(team_->next_window_id()) {}
  kernels::KernelRmaOperation make_operation(kernels::KernelRmaOperation::Kind kind,
                                             int rank) const;
  // The signal words lie behind the memory for users' kernels.
  kernels::WindowSignalWords* signal_words(int rank) const noexcept {
    return reinterpret_cast<kernels::WindowSignalWords*>(device_api_memory(rank) + 1);
  }

  const std::shared_ptr<DeviceTeam> team_;
  const uint32_t window_id_;
  std::vector<RankMemory> rank_memories_;  // by rank
  std::vector<uintptr_t> peer_views_;      // by rank: where it maps this rank's memory
  bool has_separate_copy_queues_ = true;
  std::unique_ptr<transport::nvl::PeerMemory> memory_;
  std::unique_ptr<transport::nvl::SymmetricMemory> signal_memory_;
};

}  // namespace torch::comms::ctran
