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

// Memory of every rank of a team, on its device, which the others write without its doing.
//
// Large puts go by the copy engine, to memory that this process maps; small ones, signals and waits
// are kernels of the team, which end with it: at their limit, and when it is aborted. All of it may
// be captured.
// What is enqueued is one after the other on each rank, as the team's launches are.
//
// Order: whoever has seen a rank's signal, or a value that it stored, sees all that this rank put
// to it before.
//
// Threads: as the team.
class DeviceWindow {
 public:
  // What a rank brings, and what the others learn of it.
  struct RankMemory {
    std::byte* at = nullptr;  // as this process maps it; null where there are no bytes
    size_t size_bytes = 0;
    uint64_t slots = 0;         // 64-bit words beside it, zero at first
    std::string metadata = {};  // up to kMaxMetadataBytes
  };
  static constexpr size_t kMaxMetadataBytes = 256;

  // Either all ranks have one, or none.
  struct DeviceWindowResult {
    std::unique_ptr<DeviceWindow> window;
    std::string
        unavailable_reason;  // the same text on all ranks, naming the first rank that cannot
  };
  // Collective. `own.at` is memory of the team's device, which is current, and outlives the window.
  // `unwilling`: why this rank can have none; "" where it can. Throws what `exchange` does.
  static DeviceWindowResult create(const std::shared_ptr<DeviceTeam>& team, const RankMemory& own,
                                   std::string unwilling,
                                   const transport::nvl::AllGatherStrings& exchange);

  const RankMemory& rank_memory(int rank) const noexcept {
    return rank_memories_[static_cast<size_t>(rank)];
  }
  // This rank's memory `at`, which is in it, as `rank` maps it.
  void* address_on_peer(int rank, const void* at) const noexcept;
  // Whether those bytes of this rank's memory are in it.
  bool contains(const void* at, size_t size_bytes) const noexcept;
  // Whether no two ranks of one process have the same device. What those copy may be in one queue,
  // and wait there for what waits for it. Alike on all ranks.
  bool has_separate_copy_queues() const noexcept { return has_separate_copy_queues_; }
  // It as a region, for `call`, whose output or input is in it; see kernels::WindowCollectiveCall.
  kernels::WindowCollectiveCall make_collective_call(
      const kernels::KernelCall& call,
      kernels::CopyMethod carrier = kernels::CopyMethod::kAutomatic) const noexcept;
  const DeviceTeam& team() const noexcept { return *team_; }
  // For kernels of users: what `rank` has for all, and its handle; zero at first, and as this
  // process maps it.
  struct DeviceApiMemory {
    torchcomms::device::WindowArea area;
    alignas(256) torchcomms::device::WindowState handle;
  };
  DeviceApiMemory* device_api_memory(int rank) const noexcept {
    return static_cast<DeviceApiMemory*>(signal_memory_->at(rank));
  }
  // On this rank's device, beside its memory.
  size_t signal_bytes() const noexcept { return signal_memory_->size_bytes(); }

  // What is in bounds is the caller's to check. Throw CommError(kVendor).
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
  // Behind what is for kernels of users.
  kernels::WindowSignalWords* signal_words(int rank) const noexcept {
    return reinterpret_cast<kernels::WindowSignalWords*>(device_api_memory(rank) + 1);
  }

  const std::shared_ptr<DeviceTeam> team_;
  const uint32_t window_id_;
  std::vector<RankMemory> rank_memories_;  // by rank
  std::vector<uintptr_t> peer_views_;      // by rank: where that maps this rank's memory
  bool has_separate_copy_queues_ = true;
  std::unique_ptr<transport::nvl::PeerMemory> memory_;
  std::unique_ptr<transport::nvl::SymmetricMemory> signal_memory_;
};

}  // namespace torch::comms::ctran
