#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"

// The ranks of a team in one process. With fewer GPUs than ranks several of them share one; then a
// peer's workspace is plain memory of the same GPU.
namespace native {

namespace kernels = torch::comms::ctran::kernels;

inline void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// Loads the library of kernels for all devices.
const kernels::KernelFunctionTable& open_library(const std::string& path);

struct Rank {
  int device = 0;
  cudaStream_t stream = nullptr;
  cudaStream_t side = nullptr;  // beside it, with events to go there and to come back
  cudaEvent_t forked = nullptr, joined = nullptr;
  kernels::TeamDescriptor team{};
  kernels::KernelControl* control = nullptr;  // as the host sees it
};

class World {
 public:
  // Of all that are made from then on: messages go through the first part of a workspace alone.
  static inline bool lacks_rest = false;

  // `first_launch`: what the next launch is counted as; 1 for a workspace as it is made.
  World(const kernels::KernelFunctionTable& library, int ranks, uint64_t first_launch = 1);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  const Rank& operator[](int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  const kernels::KernelFunctionTable& library() const { return library_; }
  bool shares_gpus() const { return shares_; }
  // Whether copy engines can carry it on all ranks. Where ranks share a GPU, in this one process,
  // those whose copies are in stages, with a barrier between, cannot: of the ranks of a GPU the
  // first may have its second stage queued before the first stage of another, for which it waits.
  bool may_copy(kernels::Collective collective) const;
  // The most ranks that are on one GPU.
  int ranks_of_gpu() const;

  // Of what this rank launches from then on.
  void lack_rest(int rank, bool does) {
    ranks_[static_cast<size_t>(rank)].team.is_partial = does ? 1 : 0;
  }

  // As a host does that has heard of `peer`, while kernels of `rank` may wait for it.
  void mark_quiesced(int rank, int peer) const {
    std::atomic_ref((*this)[rank].control->quiesced).fetch_or(uint32_t{1} << peer);
  }

  void select(int rank) const { must(cudaSetDevice((*this)[rank].device), "cudaSetDevice"); }
  // Throws with the rank's own words if the launch fails.
  void launch(int rank, const kernels::KernelCall& call) const;
  // With the rank's side stream.
  void launch(int rank, kernels::WindowCollectiveCall call) const;
  // Nothing where there are no messages.
  void exchange(int rank, std::span<const kernels::KernelMessage> messages, int blocks,
                uint64_t limit_ns) const;
  void exchange(int rank, const kernels::AllToAllVDynamic& exchange) const;
  void reduce_scatter(int rank, const kernels::QuantizedReduceScatter& call) const;
  void synchronize() const;
  // Throws if a rank has stopped.
  void check_alive() const;

 private:
  void check(int rank, int error) const;

  const kernels::KernelFunctionTable& library_;
  std::vector<Rank> ranks_;
  bool shares_ = false;
};

// Memory of a rank's device.
class DeviceMemory {
 public:
  DeviceMemory(const World& world, int rank, size_t bytes);
  ~DeviceMemory() { cudaFree(at_); }
  DeviceMemory(DeviceMemory&& other) noexcept : at_(other.at_) { other.at_ = nullptr; }
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  char* get() const { return at_; }

 private:
  char* at_ = nullptr;
};

}  // namespace native
