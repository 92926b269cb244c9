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
  HierarchicalKernels(std::unique_ptr<HierarchicalCollectives> collectives,
                      FailedPeerLookup find_failed_peer)
      : collectives_(std::move(collectives)), find_failed_peer_(std::move(find_failed_peer)) {}

  HierarchicalCollectives& collectives() const noexcept { return *collectives_; }
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
  const auto& link_context = *group.link_context();
  std::vector<int> host_of;
  for (int rank = 0; rank < group.size(); ++rank) {
    int first = 0;
    while (!link_context.is_same_host(group.context_rank(first), group.context_rank(rank))) ++first;
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

  const std::shared_ptr<CtranHierarchicalBackend> backend(new CtranHierarchicalBackend(links));
  std::string why_not;
  const bool is_connected = backend->init_from_members(
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
              [&](const std::string& text) { return links.gather(*local, text); });
        if (why_not.empty()) why_not = team.unavailable_reason;
        std::unique_ptr<ctran::HierarchicalCollectives> collectives;
        if (why_not.empty())
          why_not = transport::nvl::error_text_of([&] {
            collectives = std::make_unique<ctran::HierarchicalCollectives>(
                ctran::HierarchicalCollectives::Options{.rank = rank,
                                                        .topology = std::move(hosts),
                                                        .library = std::move(library),
                                                        .runtime = runtime,
                                                        .team = std::move(team.team),
                                                        .rail = std::move(rail)});
          });
        why_not = transport::nvl::first_error(links.gather(links.group, why_not));
        if (!why_not.empty()) return nullptr;
        backend->kernels_ = std::make_shared<ctran::HierarchicalKernels>(
            std::move(collectives), backend->find_failed_peer_);
        return ctran::open_team(nullptr, runtime);
      });
  return {is_connected ? backend : nullptr, std::move(why_not)};
}

void CtranHierarchicalBackend::on_connected() {
  launch_queue()->attach_kernels(kernels_, /*serialized=*/true);
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

bool CtranHierarchicalBackend::can_run(const OnDevice& query) const {
  if (!kernels_) return false;
  const auto& collectives = kernels_->collectives();
  const auto reduces = [&] {
    return collectives.can_run(ctran::dtype_of(query.dtype), ctran::op_of(*query.reduction));
  };
  switch (query.op) {
    case OpName::broadcast:
    case OpName::barrier:
      return true;
    case OpName::all_gather_single:
      return collectives.can_run_all_gather();
    case OpName::all_reduce:
      return reduces();
    case OpName::reduce_scatter_single:
      return collectives.can_run_all_gather() && reduces();
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
  return run(now, options, operands, [&](const nccl::NcclLaunch& launch) {
    body(kernels_->collectives(),
         ctran::HierarchicalCollectives::HierarchicalStep{now.timeout, launch.stream});
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
}

WorkPtr CtranHierarchicalBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                            const BroadcastOptions& options) {
  return launch_collective(OpName::broadcast, async_op, options, {{&tensor}, {}},
                           [&](auto& collectives, const auto& step) {
                             collectives.broadcast(ctran::memory_of(tensor), tensor.nbytes(), root,
                                                   step);
                           });
}

WorkPtr CtranHierarchicalBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                             const AllReduceOptions& options) {
  return launch_collective(OpName::all_reduce, async_op, options, {{&tensor}, {}},
                           [&](auto& collectives, const auto& step) {
                             collectives.all_reduce(
                                 ctran::memory_of(tensor), static_cast<size_t>(tensor.numel()),
                                 ctran::dtype_of(tensor.scalar_type()), ctran::op_of(op), step);
                           });
}

WorkPtr CtranHierarchicalBackend::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                                    bool async_op,
                                                    const AllGatherSingleOptions& options) {
  const auto source = nccl::copy_input_if_overlapping(input, output, getRank());
  return launch_collective(OpName::all_gather_single, async_op, options, {{&output, &source}, {}},
                           [&](auto& collectives, const auto& step) {
                             collectives.all_gather(ctran::memory_of(output),
                                                    ctran::memory_of(source), source.nbytes(),
                                                    step);
                           });
}

WorkPtr CtranHierarchicalBackend::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterSingleOptions& options) {
  const auto source = nccl::copy_input_if_overlapping(input, output, getRank());
  return launch_collective(OpName::reduce_scatter_single, async_op, options,
                           {{&output, &source}, {}}, [&](auto& collectives, const auto& step) {
                             collectives.reduce_scatter(
                                 ctran::memory_of(output), ctran::memory_of(source),
                                 static_cast<size_t>(output.numel()),
                                 ctran::dtype_of(output.scalar_type()), ctran::op_of(op), step);
                           });
}

WorkPtr CtranHierarchicalBackend::barrier(bool async_op, const BarrierOptions& options) {
  return launch_collective(OpName::barrier, async_op, options, {{}, {}},
                           [](auto& collectives, const auto& step) { collectives.barrier(step); });
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
  const auto& collectives = kernels_->collectives();
  notes["kernels"] =
      ctran::text_of(collectives.topology()) + ": all_reduce, broadcast, barrier" +
      (collectives.can_run_all_gather() ? ", all_gather_single, reduce_scatter_single" : "") +
      " by kernels inside hosts (" + collectives.architectures() + ", " +
      collectives.library_path() +
      ") and the CPU's links between them. Other operations are copied through host "
      "memory, as are PREMUL_SUM and averages of integers" +
      (collectives.can_run_all_gather() ? ""
                                        : "; and all averages, all_gather_single and "
                                          "reduce_scatter_single, for the hosts differ in size");
  notes["operations between hosts"] = std::to_string(collectives.operations());
  return notes;
}

std::map<std::string, uint64_t> CtranHierarchicalBackend::memory_usage() const {
  auto bytes = NcclApiBackend::memory_usage();
  if (kernels_) bytes["kernels"] = kernels_->collectives().workspace_bytes();
  return bytes;
}

}  // namespace torch::comms
