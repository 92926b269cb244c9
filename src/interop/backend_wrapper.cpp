#include <torchcomms/backend_wrapper.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "core/comm/error_context.hpp"
#include "interop/coalescing.hpp"
#include "interop/contiguous.hpp"
#include "interop/registered_pools.hpp"
#include "interop/sparse.hpp"
#include "interop/translate.hpp"

namespace torch::comms {
namespace {

using c10d::OpType;

const TorchComm& required(const std::shared_ptr<TorchComm>& comm) {
  if (!comm)
    throw CommError(Errc::kInvalidArgument, "comm is None, allowed is a communicator",
                    {.op = "_BackendWrapper"});
  return *comm;
}

bool all_as_large(const std::vector<at::Tensor>& tensors, const at::Tensor& as) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == as.numel(); });
}

// Returns: true if the communicator has no members until reconfigure().
bool is_awaited(const TorchComm& comm) {
  return comm.capabilities().reconfigure && !comm.isConnected();
}

}  // namespace

BackendWrapper::Options::Options() : c10d::Backend::Options("torchcomms") {}
#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10::intrusive_ptr<c10d::Backend::Options> BackendWrapper::Options::clone() const {
  return c10::make_intrusive<Options>(*this);
}
#endif

BackendWrapper::BackendWrapper(std::shared_ptr<TorchComm> comm)
    // A communicator without members has no rank, so the wrapper is rank 0 of 1 until
    // reconfigure().
    : c10d::Backend(is_awaited(required(comm)) ? 0 : comm->getRank(),
                    is_awaited(*comm) ? 1 : comm->getSize()),
      comm_(std::move(comm)),
      options_(c10::make_intrusive<Options>()),
      pools_(std::make_shared<RegisteredPools>()) {
  const auto& comm_options = comm_->getOptions();
  options_->group_name = std::string(comm_->getCommName());
  // Older versions of torch have no such field.
  [&](auto& options) {
    if constexpr (requires { options.enable_reconfigure; })
      options.enable_reconfigure = comm_options.enable_reconfigure;
  }(*options_);
  options_->abort_process_on_timeout_or_error = comm_options.abort_process_on_timeout_or_error;
  options_->is_high_priority_stream = comm_options.is_high_priority_stream;
  options_->store = comm_options.store;
  options_->default_timeout = comm_options.timeout;
  options_->hints = comm_options.hints;
}

const std::string BackendWrapper::getBackendName() const { return comm_->getBackend(); }
c10::intrusive_ptr<c10d::Backend::Options> BackendWrapper::getBackendOptions() { return options_; }
void BackendWrapper::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = options_->default_timeout = timeout;
}
std::chrono::milliseconds BackendWrapper::limit(std::chrono::milliseconds timeout) const {
  return std::min<std::chrono::milliseconds>(
      timeout > torch::comms::kNoTimeout ? timeout : timeout_, torch::comms::kMaxTimeout);
}
std::shared_ptr<c10::Allocator> BackendWrapper::getMemAllocator() {
  return comm_->getMemAllocator();
}

void BackendWrapper::registerMemPool(const MemPoolId& pool,
                                     const std::vector<MemPoolSegment>& segments) {
  pools_->update(*comm_, pool, segments);
}

void BackendWrapper::deregisterMemPool(const MemPoolId& pool) { pools_->remove(*comm_, pool); }

c10::intrusive_ptr<WorkWrapper> BackendWrapper::wrap(const C10dCallScope& call,
                                                     std::vector<torch::comms::WorkPtr> works,
                                                     Tensors outputs, OpType type, int source) {
  call.end_with(works);
  if (coalescing_region_) coalescing_region_->retain(works, outputs);
  return c10::make_intrusive<WorkWrapper>(std::move(works), std::move(outputs), type, source);
}

c10::intrusive_ptr<WorkWrapper> BackendWrapper::collective(const C10dCallScope& call,
                                                           torch::comms::WorkPtr work,
                                                           Tensors outputs, OpType type) {
  ++collectives_;
  return wrap(call, {std::move(work)}, std::move(outputs), type);
}

template <class Issue>
torch::comms::WorkPtr BackendWrapper::run_into(const Tensors& outputs, bool async_op,
                                               const Issue& issue) {
  torch::comms::WorkPtr work;
  if (are_writable_in_place(outputs)) {
    work = issue(outputs, async_op);
  } else {
    const ContiguousOutputs each(outputs);
    work = issue(each.tensors(), /*async_op=*/true);
    work->wait();
    each.copy_back();
  }
  ++collectives_;
  return work;
}

c10::intrusive_ptr<WorkWrapper> BackendWrapper::coalesce(const P2POp& message, Tensors outputs,
                                                         OpType type, int source) {
  coalescing_region_->retain({}, outputs);
  return c10::make_intrusive<WorkWrapper>(std::vector{coalescing_region_->add(message)},
                                          std::move(outputs), type, source);
}

BackendWrapper::WorkPtr BackendWrapper::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& options) {
  const C10dCallScope call(*this, "broadcast", tensors);
  require_first_tensor("broadcast", options.rootTensor);
  auto data = flat(require_single("broadcast", tensors));
  return collective(call,
                    comm_->broadcast(data, static_cast<int>(options.rootRank), options.asyncOp,
                                     with_timeout<BroadcastOptions>(options.timeout)),
                    tensors, OpType::BROADCAST);
}

BackendWrapper::WorkPtr BackendWrapper::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  const auto& tensor = require_single("allreduce", tensors);
  const bool sparse = tensor.defined() && tensor.layout() != at::kStrided;
  const C10dCallScope call(*this, sparse ? "sparse_all_reduce" : "all_reduce", tensors);
  if (sparse)
    return collective(call,
                      all_reduce_sparse(comm_, tensor, translate(options.reduceOp), options.asyncOp,
                                        with_timeout<AllGatherOptions>(options.timeout)),
                      tensors, OpType::_ALLREDUCE_SPARSE);
  auto data = flat(tensor);
  return collective(call,
                    comm_->all_reduce(data, translate(options.reduceOp), options.asyncOp,
                                      with_timeout<AllReduceOptions>(options.timeout)),
                    tensors, OpType::ALLREDUCE);
}

BackendWrapper::WorkPtr BackendWrapper::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const C10dCallScope call(*this, "all_reduce", tensors);
  std::vector<torch::comms::WorkPtr> works;
  for (const auto& tensor : tensors) {
    auto data = flat(tensor);
    ++collectives_;
    works.push_back(comm_->all_reduce(data, translate(options.reduceOp), options.asyncOp,
                                      with_timeout<AllReduceOptions>(options.timeout)));
  }
  return wrap(call, std::move(works), tensors, OpType::ALLREDUCE_COALESCED);
}

BackendWrapper::WorkPtr BackendWrapper::reduce(Tensors& tensors,
                                               const c10d::ReduceOptions& options) {
  const C10dCallScope call(*this, "reduce", tensors);
  require_first_tensor("reduce", options.rootTensor);
  auto data = flat(require_single("reduce", tensors));
  return collective(
      call,
      comm_->reduce(data, static_cast<int>(options.rootRank), translate(options.reduceOp),
                    options.asyncOp, with_timeout<ReduceOptions>(options.timeout)),
      tensors, OpType::REDUCE);
}

BackendWrapper::WorkPtr BackendWrapper::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  const C10dCallScope call(*this, "all_gather", inputs);
  const auto input = contiguous(require_single("allgather", inputs));
  const auto& list = require_single("allgather", outputs);
  const auto limit = with_timeout<AllGatherOptions>(options.timeout);
  auto work = run_into(list, options.asyncOp, [&](const Tensors& all, bool async_op) {
    return all_as_large(all, input) ? comm_->all_gather(all, input, async_op, limit)
                                    : comm_->all_gather_v(all, input, async_op, limit);
  });
  return wrap(call, {std::move(work)}, list, OpType::ALLGATHER);
}

BackendWrapper::WorkPtr BackendWrapper::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  const C10dCallScope call(*this, "all_gather", inputs);
  if (outputs.size() == 1) return allgather(outputs, inputs, options);
  // With several lists, each list is the output of one rank, not of one input.
  std::vector<torch::comms::WorkPtr> works;
  Tensors all;
  for (const auto& of_rank : outputs)
    require_same_length("allgather_coalesced", of_rank.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const auto& of_rank : outputs) list.push_back(of_rank[i]);
    const auto input = contiguous(inputs[i]);
    works.push_back(run_into(list, options.asyncOp, [&](const Tensors& all, bool async_op) {
      return comm_->all_gather(all, input, async_op,
                               with_timeout<AllGatherOptions>(options.timeout));
    }));
    all.insert(all.end(), list.begin(), list.end());
  }
  return wrap(call, std::move(works), std::move(all), OpType::ALLGATHER_COALESCED);
}

torch::comms::WorkPtr BackendWrapper::start_all_gather_single(
    const at::Tensor& output, const at::Tensor& input, const c10d::AllgatherOptions& options) {
  const auto given = contiguous(input);
  return run_into({output}, options.asyncOp, [&](const Tensors& all, bool async_op) {
    auto to = all[0];
    return comm_->all_gather_single(to, given, async_op,
                                    with_timeout<AllGatherSingleOptions>(options.timeout));
  });
}

BackendWrapper::WorkPtr BackendWrapper::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  const C10dCallScope call(*this, "all_gather_into_tensor", input);
  return wrap(call, {start_all_gather_single(output, input, options)}, {output},
              OpType::_ALLGATHER_BASE);
}

BackendWrapper::WorkPtr BackendWrapper::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const C10dCallScope call(*this, "all_gather_into_tensor", inputs);
  require_same_length("allgather_into_tensor_coalesced", outputs.size(), inputs.size());
  std::vector<torch::comms::WorkPtr> works;
  works.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(start_all_gather_single(outputs[i], inputs[i], options));
  }
  return wrap(call, std::move(works), outputs, OpType::COALESCED);
}

BackendWrapper::WorkPtr BackendWrapper::gather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  const C10dCallScope call(*this, "gather", inputs);
  const auto& list = at_most_one("gather", outputs);
  const auto input = contiguous(require_single("gather", inputs));
  auto work = run_into(list, options.asyncOp, [&](const Tensors& all, bool async_op) {
    return comm_->gather(all, input, static_cast<int>(options.rootRank), async_op,
                         with_timeout<GatherOptions>(options.timeout));
  });
  return wrap(call, {std::move(work)}, list, OpType::GATHER);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
BackendWrapper::WorkPtr BackendWrapper::gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::GatherOptions& options) {
  const C10dCallScope call(*this, "gather", input);
  const auto given = contiguous(input);
  auto work = run_into({output}, options.asyncOp, [&](const Tensors& all, bool async_op) {
    auto to = all[0];
    return comm_->gather_single(to, given, static_cast<int>(options.rootRank), async_op,
                                with_timeout<GatherSingleOptions>(options.timeout));
  });
  return wrap(call, {std::move(work)}, {output}, OpType::GATHER);
}
#endif

BackendWrapper::WorkPtr BackendWrapper::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& options) {
  const C10dCallScope call(*this, "scatter", outputs);
  require_single("scatter", outputs);
  const auto given = contiguous(at_most_one("scatter", inputs));
  auto work = run_into(outputs, options.asyncOp, [&](const Tensors& all, bool async_op) {
    auto to = all[0];
    return comm_->scatter(to, given, static_cast<int>(options.rootRank), async_op,
                          with_timeout<ScatterOptions>(options.timeout));
  });
  return wrap(call, {std::move(work)}, outputs, OpType::SCATTER);
}

BackendWrapper::WorkPtr BackendWrapper::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  const C10dCallScope call(*this, "reduce_scatter", outputs);
  const bool even = all_as_large(require_single("reduce_scatter", inputs),
                                 require_single("reduce_scatter", outputs));
  const auto given = contiguous(inputs.front());
  const auto op = translate(options.reduceOp);
  const auto limit = with_timeout<ReduceScatterOptions>(options.timeout);
  auto work = run_into(outputs, options.asyncOp, [&](const Tensors& all, bool async_op) {
    auto to = all[0];
    return even ? comm_->reduce_scatter(to, given, op, async_op, limit)
                : comm_->reduce_scatter_v(to, given, op, async_op, limit);
  });
  return wrap(call, {std::move(work)}, outputs, OpType::REDUCE_SCATTER);
}

torch::comms::WorkPtr BackendWrapper::start_reduce_scatter_single(
    const at::Tensor& output, const at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  const auto given = contiguous(input);
  return run_into({output}, options.asyncOp, [&](const Tensors& all, bool async_op) {
    auto to = all[0];
    return comm_->reduce_scatter_single(to, given, translate(options.reduceOp), async_op,
                                        with_timeout<ReduceScatterSingleOptions>(options.timeout));
  });
}

BackendWrapper::WorkPtr BackendWrapper::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  const C10dCallScope call(*this, "reduce_scatter_tensor", output);
  return wrap(call, {start_reduce_scatter_single(output, input, options)}, {output},
              OpType::_REDUCE_SCATTER_BASE);
}

BackendWrapper::WorkPtr BackendWrapper::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  const C10dCallScope call(*this, "reduce_scatter_tensor", outputs);
  require_same_length("reduce_scatter_tensor_coalesced", outputs.size(), inputs.size());
  std::vector<torch::comms::WorkPtr> works;
  works.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    works.push_back(start_reduce_scatter_single(outputs[i], inputs[i], options));
  }
  return wrap(call, std::move(works), outputs, OpType::COALESCED);
}

BackendWrapper::WorkPtr BackendWrapper::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  const C10dCallScope call(*this, "all_to_all", input);
  const auto given = contiguous(input);
  const auto exchange = [&](const auto& issue) {
    return wrap(call, {run_into({output}, options.asyncOp, issue)}, {output},
                OpType::ALLTOALL_BASE);
  };
  if (output_splits.empty() && input_splits.empty())
    return exchange([&](const Tensors& all, bool async_op) {
      auto to = all[0];
      return comm_->all_to_all_single(to, given, async_op,
                                      with_timeout<AllToAllSingleOptions>(options.timeout));
    });
  // If only one of the two lists is empty, that side has equal parts.
  const auto parts = [&](const std::vector<int64_t>& splits, const at::Tensor& tensor) {
    if (!splits.empty()) return translate("alltoall_base", splits);
    const auto ranks = static_cast<uint64_t>(comm_->getSize());
    const auto rows = tensor.dim() == 0 ? 0 : static_cast<uint64_t>(tensor.size(0));
    if (rows % ranks != 0)
      throw CommError(Errc::kInvalidArgument,
                      std::to_string(rows) + " rows have no equal parts for " +
                          std::to_string(ranks) + " ranks; give their split sizes",
                      {.op = "alltoall_base"});
    return Splits(ranks, rows / ranks);
  };
  const auto received = parts(output_splits, output), sent = parts(input_splits, input);
  return exchange([&](const Tensors& all, bool async_op) {
    auto to = all[0];
    return comm_->all_to_all_v_single(to, given, received, sent, async_op,
                                      with_timeout<AllToAllvSingleOptions>(options.timeout));
  });
}

BackendWrapper::WorkPtr BackendWrapper::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  const C10dCallScope call(*this, "all_to_all", inputs);
  const auto given = contiguous(inputs);
  auto work = run_into(outputs, options.asyncOp, [&](const Tensors& all, bool async_op) {
    return comm_->all_to_all(all, given, async_op, with_timeout<AllToAllOptions>(options.timeout));
  });
  return wrap(call, {std::move(work)}, outputs, OpType::ALLTOALL);
}

BackendWrapper::WorkPtr BackendWrapper::barrier(const c10d::BarrierOptions& options) {
  const C10dCallScope call(*this, "barrier", {});
  auto work = collective(
      call, comm_->barrier(options.asyncOp, with_timeout<BarrierOptions>(options.timeout)), {},
      OpType::BARRIER);
  if (!options.asyncOp) work->blockHost();
  return work;
}

BackendWrapper::WorkPtr BackendWrapper::send(Tensors& tensors, int dst, int tag) {
  const C10dCallScope call(*this, "send", tensors);
  require_tag("send", tag);
  const auto data = flat(require_single("send", tensors));
  if (is_coalescing()) return coalesce({P2POpType::SEND, data, dst, tag}, {}, OpType::SEND);
  auto options = with_timeout<SendOptions>(torch::comms::kNoTimeout);
  options.tag = tag;
  return wrap(call, {comm_->send(data, dst, /*async_op=*/true, options)}, {}, OpType::SEND);
}

BackendWrapper::WorkPtr BackendWrapper::recv(Tensors& tensors, int src, int tag) {
  const C10dCallScope call(*this, "recv", tensors);
  require_tag("recv", tag);
  auto data = flat(require_single("recv", tensors));
  if (is_coalescing())
    return coalesce({P2POpType::RECV, data, src, tag}, tensors, OpType::RECV, src);
  auto options = with_timeout<RecvOptions>(torch::comms::kNoTimeout);
  options.tag = tag;
  return wrap(call, {comm_->recv(data, src, /*async_op=*/true, options)}, tensors, OpType::RECV,
              src);
}

BackendWrapper::WorkPtr BackendWrapper::recvAnysource(Tensors& tensors, int tag) {
  const C10dCallScope call(*this, "recvAnySource", tensors);
  require_tag("recvAnysource", tag);
  auto data = flat(require_single("recvAnysource", tensors));
  if (is_coalescing())
    throw CommError(Errc::kUnsupported,
                    "a receive from any source cannot be coalesced; pass the source rank",
                    {.op = "recvAnysource", .comm = std::string(comm_->getCommName())});
  auto options = with_timeout<RecvOptions>(torch::comms::kNoTimeout);
  options.tag = tag;
  options.any_source = true;
  return wrap(call, {comm_->recv(data, kAnySource, /*async_op=*/true, options)}, tensors,
              OpType::RECVANYSOURCE);
}

bool BackendWrapper::is_coalescing() const {
  return coalescing_region_ && coalescing_region_->is_open();
}

void BackendWrapper::startCoalescing() {
  if (is_coalescing()) {
    // The region is kept as canceled, so that the next startCoalescing() succeeds.
    coalescing_region_->cancel("startCoalescing() was called before endCoalescing()");
    throw CommError(
        Errc::kInvalidArgument,
        "the last coalescing region was not ended, perhaps because of an exception. It is "
        "canceled now; call startCoalescing() again",
        {.op = "startCoalescing", .comm = std::string(comm_->getCommName())});
  }
  coalescing_region_ = std::make_shared<CoalescingRegion>(comm_);
}

BackendWrapper::WorkPtr BackendWrapper::endCoalescing() {
  const auto region = std::exchange(coalescing_region_, nullptr);
  if (!region)
    throw CommError(Errc::kInvalidArgument, "endCoalescing() was called without startCoalescing()",
                    {.op = "endCoalescing", .comm = std::string(comm_->getCommName())});
  return region->end(with_timeout<BatchP2POptions>(torch::comms::kNoTimeout));
}

c10::intrusive_ptr<c10d::Backend> BackendWrapper::split(
    const c10::intrusive_ptr<c10d::Store>& /*store*/, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  CommOptions ours;
  std::string name;
  if (options) {
    name = options->group_name;
    if (options->timeout > torch::comms::kNoTimeout && options->timeout != kBackendDefaultTimeout)
      ours.timeout = limit(options->timeout);
    if (const auto* own = dynamic_cast<const Options*>(options.get())) {
      ours.hints = own->hints;
      if (own->abort_process_on_timeout_or_error)
        ours.abort_process_on_timeout_or_error = *own->abort_process_on_timeout_or_error;
      ours.is_high_priority_stream = own->is_high_priority_stream;
    }
  }
  const bool member = std::find(ranks.begin(), ranks.end(), comm_->getRank()) != ranks.end();
  const auto child = comm_->split(member ? ranks : std::vector<int>{}, name, ours);
  if (!child) return nullptr;
  return c10::make_intrusive<BackendWrapper>(child);
}

void BackendWrapper::abort() {
  // torch may call abort() inside of a region, which it ends afterwards.
  if (coalescing_region_) coalescing_region_->cancel("abort() was called");
  try {
    comm_->abort();
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kInfo, std::string("abort: ") + e.what());
  }
}

void BackendWrapper::shutdown() {
  try {
    comm_->finalize();
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kInfo, std::string("shutdown: ") + e.what());
  }
}

}  // namespace torch::comms
