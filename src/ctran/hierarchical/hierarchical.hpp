#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "ctran/hierarchical/gpe.hpp"
#include "ctran/hierarchical/host_topology.hpp"
#include "ctran/hierarchical/rail_chunks.hpp"
#include "ctran/team/device_team.hpp"

namespace torch::comms::ctran {

// Collectives of ranks on several hosts, each with a GPU. Inside a host by kernels over mapped
// memory, between hosts by the CPU engine on pinned memory, along rails (hosts.hpp): chunk by
// chunk, so that the links between hosts work while the GPU prepares the next chunk. Everything is
// launched on one stream, and may be captured.
//
// All_reduce in two levels, of which the one between hosts moves the least data [Patarasuk & Yuan,
// JPDC 2009; Cho et al., BlueConnect, MLSys 2019]: reduce_scatter in the host, all_reduce along
// each rail, all_gather in the host. Sums are added in rank order inside hosts, then as the
// engine's all_reduce does, and rounded to the dtype in between; all ranks have the same bits.
//
// Threads: operations one at a time, in the same order on all ranks; abort(), failure(): any.
class HierarchicalCollectives {
 public:
  // What one rank brings.
  struct Options {
    int rank;
    HostTopology topology;
    KernelLibrary library;
    std::shared_ptr<const gpu::Runtime> runtime;
    std::unique_ptr<DeviceTeam> team;   // of the host's ranks; null where it has one
    std::unique_ptr<EngineGroup> rail;  // null where this rank is on none
    ChunkSizes chunk_sizes{.part_bytes = size_t{1} << 20, .small_bytes = size_t{32} << 10};
  };
  // The device is current. Throws as Gpe.
  explicit HierarchicalCollectives(Options options);

  // Whether the arithmetic is for it, the same on all ranks: defined, and without what two levels
  // would change: factors, averages of integers, and averages over hosts of different sizes.
  bool can_run(Dtype dtype, ReduceOpCode op) const;
  // Whether it has all_gather() and reduce_scatter(): for hosts of one size alone.
  bool can_run_all_gather() const noexcept { return topology_.has_equal_hosts(); }

  // What an operation is given besides its memory.
  struct HierarchicalStep {
    std::chrono::milliseconds timeout;  // of each step of it
    gpu::NativeStream stream;
  };
  // Enqueue. Throw CommError(kVendor).
  void all_reduce(void* data, size_t count, Dtype dtype, ReduceOpCode op,
                  const HierarchicalStep& how);
  void broadcast(void* data, size_t size_bytes, int root, const HierarchicalStep& how);
  void barrier(const HierarchicalStep& how);
  // `size_bytes`, `count`: of one rank's part.
  void all_gather(void* output, const void* input, size_t size_bytes, const HierarchicalStep& how);
  void reduce_scatter(void* output, const void* input, size_t count, Dtype dtype, ReduceOpCode op,
                      const HierarchicalStep& how);

  // Why kernels or the host have stopped, with the culprit's rank; nothing while all is well.
  std::optional<CommError> failure(const Context& context) const;
  // `why`: see Gpe::abort().
  void abort(const CommError& why) noexcept;
  // No more replays: see Gpe::close_queue().
  void close() noexcept;

  uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  size_t pinned_bytes() const noexcept { return gpe_->staging_bytes(); }
  size_t workspace_bytes() const noexcept { return team_ ? team_->workspace_bytes() : 0; }
  std::string architectures() const { return library_.functions->architectures(); }
  const std::string& library_path() const noexcept { return library_.path; }
  const HostTopology& topology() const noexcept { return topology_; }

 private:
  // The slot of staging memory that a chunk has, and where it begins.
  size_t slot_begin(size_t chunk) const noexcept;
  std::byte* slot(size_t chunk) const noexcept { return gpe_->staging() + slot_begin(chunk); }
  bool has_rail(int rail) const noexcept { return host_rank_.local_rank < rail; }
  int local_size() const noexcept { return team_ ? team_->size() : 1; }
  // What a step works on: bytes, where nothing is reduced.
  struct ElementSpan {
    size_t count;
    Dtype dtype = Dtype::kUInt8;
    ReduceOpCode op{};
  };
  // A step inside the host, by kernels: see kernels::Call.
  void launch(kernels::Collective collective, const ElementSpan& of, const void* input,
              void* output, const HierarchicalStep& how, int root = 0);
  // A step between hosts, of a chunk in its slot: by the engine, when the stream has come so far.
  // The stream goes on, until wait().
  void post(GpeCommand::Kind kind, size_t chunk, const ElementSpan& of, const HierarchicalStep& how,
            int root = 0);
  void wait(const HierarchicalStep& how);
  // `down(i)` of each chunk, and so much later that its links had time, `up(i)`.
  template <class Down, class Up>
  void pipeline(size_t chunks, const Down& down, const Up& up);
  // The parts of a chunk to the whole host, each from the rank that has it.
  void distribute(std::byte* data, const RailChunk& chunk, size_t element_bytes,
                  const HierarchicalStep& how);

  const int rank_;
  const HostTopology topology_;
  const HostTopology::HostRank host_rank_;
  const ChunkSizes chunk_sizes_;
  const KernelLibrary library_;
  const std::shared_ptr<const gpu::Runtime> runtime_;
  const std::unique_ptr<DeviceTeam> team_;
  std::unique_ptr<Gpe> gpe_;
  std::atomic<uint64_t> operations_{0};
};

}  // namespace torch::comms::ctran
