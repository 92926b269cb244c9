#include "backends/ctran/hierarchical_backend.hpp"

#include <utility>

#include "backends/nccl/streams/collective_kernels.hpp"
#include "backends/nccl/streams/launch.hpp"
#include "backends/nccl/streams/tensor_args.hpp"
#include "ctran/hierarchical/hierarchical.hpp"
#include "ctran/library/team_library.hpp"
#include "transport/nvl/peer_descriptor.hpp"

namespace torch::comms {
namespace ctran {

// The hierarchical collectives in the form that the launch queue of the communicator owns.
class HierarchicalKernels final : public nccl::CollectiveKernels {
 public:
  using FailedPeerLookup = std::function<std::optional<CommError>(const Context&)>;
  HierarchicalKernels(std::unique_ptr<HierarchicalCollectives> across, FailedPeerLookup lost)
      : collectives_(std::move(across)), find_failed_peer_(std::move(lost)) {}

  HierarchicalCollectives& across() const noexcept { return *collectives_; }
  std::optional<CommError> failure(const Context& context) const override {
    return collectives_->failure(context);
  }
  std::optional<CommError> find_failed_peer(const Context& context) override {
    return find_failed_peer_(context);
  }
  void abort(const CommError& why) noexcept override { collectives_->abort(why); }
  void release() noexcept override { collectives_->close(); }

 private:
  const std::unique_ptr<HierarchicalCollectives> collectives_;
  const FailedPeerLookup find_failed_peer_;
};

namespace {

HostTopology hosts_of_members(const EngineGroup& group) {
  const auto& family = *group.link_context();
  std::vector<int> host_of;
  for (int rank = 0; rank < group.size(); ++rank) {
    int first = 0;
    while (!family.is_same_host(group.context_rank(first), group.context_rank(rank))) ++first;
    host_of.push_back(first);
  }
  return make_host_topology(host_of);
}

std::string text_of(const HostTopology& hosts) {
  std::string sizes;
  for (const auto& one : hosts.ranks)
    sizes += (sizes.empty() ? "" : " + ") + std::to_string(one.size());
  return std::to_string(hosts.count()) + " hosts of " + sizes + " ranks, " +
         std::to_string(hosts.rails) + (hosts.rails == 1 ? " rail" : " rails") + " between them";
}

Dtype dtype_of(at::ScalarType type) { return static_cast<Dtype>(type); }
ReduceOpCode op_of(const comms::ReduceOp& op) { return static_cast<ReduceOpCode>(op.type()); }
void* memory_of(const at::Tensor& tensor) { return nccl::TensorBytes(tensor).data; }

}  // namespace
}  // namespace ctran

CtranHierarchicalBackend::CtranHierarchicalBackend(const HierarchicalBackendCallbacks& links)
    : NcclApiBackend(ctran::kTeamLibrary, "ctran"),
      find_failed_peer_(links.find_failed_peer),
      explain_(links.explain) {}

CtranHierarchicalBackend::HierarchicalBackendResult CtranHierarchicalBackend::make(
    int rank, const std::vector<int>& ranks, at::Device device, const std::string& name,
    const CommOptions& options, const HierarchicalBackendCallbacks& links) {
  auto hosts = ctran::hosts_of_members(links.group);
  const auto place = hosts.host_ranks[static_cast<size_t>(rank)];
  const auto& here = hosts.ranks[static_cast<size_t>(place.host)];
  const auto limit = options.timeout;
  std::unique_ptr<ctran::EngineGroup> local, rail;
  // The members may have given the communicator different names.
  constexpr auto kOwn = ctran::EngineGroup::SplitNames::kMayDiffer;
  if (here.size() > 1) local = links.group.split(here, name + "_host", limit, kOwn);
  if (place.local_rank < hosts.rails)
    rail = links.group.split(hosts.rail(place.local_rank), name + "_rail", limit, kOwn);

  const std::shared_ptr<CtranHierarchicalBackend> made(new CtranHierarchicalBackend(links));
  std::string why_not;
  const bool is_there = made->init_from_members(
      {rank, ranks}, device, name, options, [&](const nccl::NcclDevice& opened) -> nccl::abi::Comm {
        const auto& runtime = opened.shared_runtime();
        const auto& at = opened.torch_device();
        ctran::KernelLibrary library{};
        why_not =
            transport::nvl::error_text_of([&] { library = ctran::KernelLibrary::load(*runtime); });
        ctran::DeviceTeam::DeviceTeamResult team;
        if (local)
          team = ctran::DeviceTeam::create(
              place.local_rank, local->size(), at.has_index() ? at.index() : 0, runtime, why_not,
              [&](const std::string& words) { return links.gather(*local, words); });
        if (why_not.empty()) why_not = team.unavailable_reason;
        std::unique_ptr<ctran::HierarchicalCollectives> across;
        if (why_not.empty())
          why_not = transport::nvl::error_text_of([&] {
            across = std::make_unique<ctran::HierarchicalCollectives>(
                ctran::HierarchicalCollectives::Options{.rank = rank,
                                                        .topology = std::move(hosts),
                                                        .library = std::move(library),
                                                        .runtime = runtime,
                                                        .team = std::move(team.team),
                                                        .rail = std::move(rail)});
          });
        why_not = transport::nvl::first_error(links.gather(links.group, why_not));
        if (!why_not.empty()) return nullptr;
        made->kernels_ = std::make_shared<ctran::HierarchicalKernels>(std::move(across),
                                                                      made->find_failed_peer_);
        return ctran::open_team(nullptr, runtime);
      });
  return {is_there ? made : nullptr, std::move(why_not)};
}

void CtranHierarchicalBackend::on_connected() {
  launch_queue()->attach_kernels(kernels_, /*apart=*/true);
}

void CtranHierarchicalBackend::finalize() {
  kernels_.reset();  // the launch queue keeps them until all operations are done
  NcclApiBackend::finalize();
}

std::shared_ptr<TorchCommBackend> CtranHierarchicalBackend::split(const std::vector<int>&,
                                                                  const std::string&,
                                                                  const CommOptions&) {
  throw CommError(Errc::kUnsupported,
                  "this internal backend cannot be split; call split() on the communicator",
                  {.op = "split", .comm = std::string(getCommName()), .rank = getRank()});
}

bool CtranHierarchicalBackend::can_run(const OnDevice& asked) const {
  if (!kernels_) return false;
  const auto& across = kernels_->across();
  const auto reduces = [&] {
    return across.can_run(ctran::dtype_of(asked.dtype), ctran::op_of(*asked.reduction));
  };
  switch (asked.op) {
    case OpName::broadcast:
    case OpName::barrier:
      return true;
    case OpName::all_gather_single:
      return across.can_run_all_gather();
    case OpName::all_reduce:
      return reduces();
    case OpName::reduce_scatter_single:
      return across.can_run_all_gather() && reduces();
    default:
      return false;
  }
}

template <class Body>
WorkPtr CtranHierarchicalBackend::launch_collective(OpName op, bool async_op,
                                                    const OperationOptions& options,
                                                    const OperandTensors& operands,
                                                    const Body& body) {
  auto now = begin_call(op, async_op, options);
  now.aborts_at_timeout = true;
  return run(now, options, operands, [&](const nccl::NcclLaunch& go) {
    body(kernels_->across(),
         ctran::HierarchicalCollectives::HierarchicalStep{now.timeout, go.stream});
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
}

WorkPtr CtranHierarchicalBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                            const BroadcastOptions& options) {
  return launch_collective(OpName::broadcast, async_op, options, {{&tensor}, {}},
                           [&](auto& across, const auto& how) {
                             across.broadcast(ctran::memory_of(tensor), tensor.nbytes(), root, how);
                           });
}

WorkPtr CtranHierarchicalBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                             const AllReduceOptions& options) {
  return launch_collective(
      OpName::all_reduce, async_op, options, {{&tensor}, {}}, [&](auto& across, const auto& how) {
        across.all_reduce(ctran::memory_of(tensor), static_cast<size_t>(tensor.numel()),
                          ctran::dtype_of(tensor.scalar_type()), ctran::op_of(op), how);
      });
}

WorkPtr CtranHierarchicalBackend::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                                    bool async_op,
                                                    const AllGatherSingleOptions& options) {
  const auto source = nccl::copy_input_if_overlapping(input, output, getRank());
  return launch_collective(OpName::all_gather_single, async_op, options, {{&output, &source}, {}},
                           [&](auto& across, const auto& how) {
                             across.all_gather(ctran::memory_of(output), ctran::memory_of(source),
                                               source.nbytes(), how);
                           });
}

WorkPtr CtranHierarchicalBackend::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterSingleOptions& options) {
  const auto source = nccl::copy_input_if_overlapping(input, output, getRank());
  return launch_collective(OpName::reduce_scatter_single, async_op, options,
                           {{&output, &source}, {}}, [&](auto& across, const auto& how) {
                             across.reduce_scatter(
                                 ctran::memory_of(output), ctran::memory_of(source),
                                 static_cast<size_t>(output.numel()),
                                 ctran::dtype_of(output.scalar_type()), ctran::op_of(op), how);
                           });
}

WorkPtr CtranHierarchicalBackend::barrier(bool async_op, const BarrierOptions& options) {
  return launch_collective(OpName::barrier, async_op, options, {{}, {}},
                           [](auto& across, const auto& how) { across.barrier(how); });
}

std::vector<TorchCommBackend::AlgorithmRange> CtranHierarchicalBackend::algorithms() const {
  std::vector<AlgorithmRange> ranges;
  if (!kernels_) return ranges;
  const ReduceOp sum = ReduceOp::SUM;
  for (const auto op : {OpName::broadcast, OpName::all_reduce, OpName::all_gather_single,
                        OpName::reduce_scatter_single, OpName::barrier})
    if (can_run({op, &sum, at::kFloat, nullptr}))
      ranges.push_back({op, 0, "two_level", 0, "kernels inside hosts, the CPU's links between"});
  return ranges;
}

std::map<std::string, std::string> CtranHierarchicalBackend::describe_entries() const {
  auto notes = NcclApiBackend::describe_entries();
  if (!kernels_) return notes;
  const auto& across = kernels_->across();
  notes["kernels"] =
      ctran::text_of(across.topology()) + ": all_reduce, broadcast, barrier" +
      (across.can_run_all_gather() ? ", all_gather_single, reduce_scatter_single" : "") +
      " by kernels inside hosts (" + across.architectures() + ", " + across.library_path() +
      ") and the CPU's links between them. Other operations are copied through host "
      "memory, as are PREMUL_SUM and averages of integers" +
      (across.can_run_all_gather() ? ""
                                   : "; and all averages, all_gather_single and "
                                     "reduce_scatter_single, for the hosts differ in size");
  notes["operations between hosts"] = std::to_string(across.operations());
  return notes;
}

std::map<std::string, uint64_t> CtranHierarchicalBackend::memory_usage() const {
  auto bytes = NcclApiBackend::memory_usage();
  if (kernels_) bytes["kernels"] = kernels_->across().workspace_bytes();
  return bytes;
}

}  // namespace torch::comms
