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

// Collectives of ranks on several hosts, each with a GPU. Inside a host they use kernels over
// mapped memory. Between hosts they use the CPU engine on pinned memory, along rails
// (host_topology.hpp). They work chunk by chunk, so that the links between hosts transfer while the
// GPU prepares the next chunk. All work is launched on one stream, and may be captured.
//
// all_reduce has two levels, and only the second crosses hosts, with the least data [Patarasuk &
// Yuan, JPDC 2009; Cho et al., BlueConnect, MLSys 2019]: reduce_scatter in the host, all_reduce
// along each rail, all_gather in the host. Sums are added in rank order inside hosts, then in the
// order of the engine's all_reduce. They are rounded to the dtype in between. All ranks get the
// same bits.
//
// Threads: operations one at a time, in the same order on all ranks; abort() and failure() from any
// thread.
class HierarchicalCollectives {
 public:
  // The parameters of one rank.
  struct Options {
    int rank;
    HostTopology topology;
    KernelLibrary library;
    std::shared_ptr<const gpu::Runtime> runtime;
    std::unique_ptr<DeviceTeam> team;   // of the ranks of this host; null if it has only one
    std::unique_ptr<EngineGroup> rail;  // null if this rank is on no rail
    ChunkSizes chunk_sizes{.part_bytes = size_t{1} << 20, .small_bytes = size_t{32} << 10};
  };
  // The caller has set the device.
  // Throws: like Gpe.
  explicit HierarchicalCollectives(Options options);

  // Returns: whether the reduction can run here; the same on all ranks. It must be defined, and two
  // levels must not change its result. So factors, averages of integers, and averages over hosts of
  // different sizes are excluded.
  bool can_run(Dtype dtype, ReduceOpCode op) const;
  // Returns: whether all_gather() and reduce_scatter() can run: only on hosts with equally many
  // ranks.
  bool can_run_all_gather() const noexcept { return topology_.has_equal_hosts(); }

  // How an operation runs.
  struct HierarchicalStep {
    std::chrono::milliseconds timeout;  // of each step of the operation
    gpu::NativeStream stream;
  };
  // Enqueue an operation.
  // Throws: CommError(kVendor).
  void all_reduce(void* data, size_t count, Dtype dtype, ReduceOpCode op,
                  const HierarchicalStep& how);
  void broadcast(void* data, size_t size_bytes, int root, const HierarchicalStep& how);
  void barrier(const HierarchicalStep& how);
  // `size_bytes` and `count` are those of one rank's part.
  void all_gather(void* output, const void* input, size_t size_bytes, const HierarchicalStep& how);
  void reduce_scatter(void* output, const void* input, size_t count, Dtype dtype, ReduceOpCode op,
                      const HierarchicalStep& how);

  // Returns: why kernels or the host thread have failed, with the culprit as rank of the
  // communicator; nothing if they have not.
  std::optional<CommError> failure(const Context& context) const;
  // See Gpe::abort().
  void abort(const CommError& why) noexcept;
  // Releases the rail; no graph may be replayed after this. See Gpe::close().
  void close() noexcept;

  uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  size_t pinned_bytes() const noexcept { return gpe_->staging_bytes(); }
  size_t workspace_bytes() const noexcept { return team_ ? team_->workspace_bytes() : 0; }
  std::string architectures() const { return library_.functions->architectures(); }
  const std::string& library_path() const noexcept { return library_.path; }
  const HostTopology& topology() const noexcept { return topology_; }

 private:
  // The staging slot of a chunk, and its byte offset.
  size_t slot_begin(size_t chunk) const noexcept;
  std::byte* slot(size_t chunk) const noexcept { return gpe_->staging() + slot_begin(chunk); }
  bool has_rail(int rail) const noexcept { return host_rank_.local_rank < rail; }
  int local_size() const noexcept { return team_ ? team_->size() : 1; }
  // The elements that a step works on; bytes if it does not reduce.
  struct ElementSpan {
    size_t count;
    Dtype dtype = Dtype::kUInt8;
    ReduceOpCode op{};
  };
  // Launches a step inside the host, by kernels: see kernels::KernelCall.
  void launch(kernels::Collective collective, const ElementSpan& of, const void* input,
              void* output, const HierarchicalStep& how, int root = 0);
  // Posts a step between hosts, for a chunk in its staging slot. The engine executes it when the
  // stream reaches it. The stream continues until wait().
  void post(GpeCommand::Kind kind, size_t chunk, const ElementSpan& of, const HierarchicalStep& how,
            int root = 0);
  void wait(const HierarchicalStep& how);
  // Calls `down(i)` for each chunk, and `up(i)` kPipelineDepth - 1 chunks later, so that its
  // transfer can overlap.
  template <class Down, class Up>
  void pipeline(size_t chunks, const Down& down, const Up& up);
  // Distributes the parts of a chunk in the host, each from the rank that has it.
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
