#include "backends/fake/fake_backend.hpp"

#include <algorithm>

#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "core/options/hint.hpp"
#include "core/options/hint_table.hpp"
#include "core/work/failed_work.hpp"

namespace torch::comms {
namespace {

const BackendRegistration registration("fake", [] { return std::make_shared<TorchCommFake>(); });

int64_t total(const Tensors& tensors) {
  int64_t sum = 0;
  for (const auto& tensor : tensors) sum += tensor.numel();
  return sum;
}

}  // namespace

void TorchCommFake::init(at::Device device, const std::string& name, const CommOptions& options) {
  size_ = static_cast<int>(options.getHint<size_t>(hint::kFakeSize.name, 1));
  rank_ = static_cast<int>(options.getHint<size_t>(hint::kFakeRank.name, 0));
  if (size_ < 1 || rank_ >= size_)
    throw CommError(Errc::kInvalidArgument,
                    "hints fake::rank=" + std::to_string(rank_) + " and fake::size=" +
                        std::to_string(size_) + " are not allowed: expected 0 <= rank < size",
                    {.op = "new_comm", .comm = name});
  is_connected_ = !options.enable_reconfigure;
  warn_unknown_hints(options.hints);
  device_ = device;
  name_ = name;
  options_ = options;
  options_.store.reset();
  timeout_ = options.timeout;
  hints_ = options.hints;
}

Capabilities TorchCommFake::capabilities() const {
  auto capabilities = Capabilities::all();
  capabilities.windows = true;
  capabilities.reconfigure = true;
  capabilities.strict_arguments = false;
  capabilities.self_messages = true;
  capabilities.final_finalize = false;
  return capabilities;
}

WorkPtr TorchCommFake::record_call(OpName op, int root_or_peer, int64_t elements) {
  if (aborted_)
    throw CommError(Errc::kAborted, "the communicator was aborted",
                    {.op = std::string(opToString(op)), .comm = name_, .rank = rank_});
  const FakeCall call{op, root_or_peer, elements};
  if (calls_.size() < kMaxRecordedCalls) {
    calls_.push_back(call);
  } else {
    calls_[oldest_] = call;
    oldest_ = (oldest_ + 1) % kMaxRecordedCalls;
  }
  return completedWork();
}

std::vector<TorchCommFake::FakeCall> TorchCommFake::recordedCalls() const {
  auto calls = calls_;
  std::rotate(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(oldest_), calls.end());
  return calls;
}

WorkPtr TorchCommFake::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = getRank()};
  if (!options_.enable_reconfigure)
    throw CommError(Errc::kUnsupported,
                    "reconfigure not implemented for a communicator of backend 'fake' that was "
                    "made without enable_reconfigure=True",
                    context);
  const auto members = std::visit([](const auto& all) { return all.size(); }, options.handles);
  if (members == 0)
    throw CommError(Errc::kInvalidArgument,
                    "init_handles is empty, expected one init handle per member", context);
  is_connected_ = !should_fail_reconfigure_;
  if (!is_connected_)
    return c10::make_intrusive<FailedWork>(
        CommError(Errc::kPeerFailed, "setReconfigureFailure() makes reconfigure() fail", context));
  rank_ = 0;
  size_ = static_cast<int>(members);
  aborted_ = false;
  return completedWork();
}

void TorchCommFake::tensor_deregister(const at::Tensor&) {
  registered_tensors_ = std::max(0, registered_tensors_ - 1);
}

void TorchCommFake::abort() {
  if (abort_enabled_) triggerAbort();
}

void TorchCommFake::triggerAbort() {
  aborted_ = true;
  runAbortHooks();
}

WorkPtr TorchCommFake::send(const at::Tensor& tensor, int dst, bool, const SendOptions& options) {
  // The options are copied only if they differ from the defaults or replace a copy, because most
  // calls use the defaults.
  if (!options.hints.empty() || options.tag != 0 || options.timeout != kNoTimeout || last_send_)
    last_send_ = options;
  last_send_dst_ = dst;
  return record_call(OpName::send, dst, tensor.numel());
}
WorkPtr TorchCommFake::recv(at::Tensor& tensor, int src, bool, const RecvOptions& options) {
  if (!options.hints.empty() || options.tag != 0 || options.timeout != kNoTimeout || last_recv_)
    last_recv_ = options;
  last_recv_src_ = src;
  return record_call(OpName::recv, src, tensor.numel());
}
WorkPtr TorchCommFake::batch_op_issue(const std::vector<P2POp>& ops, bool, const BatchP2POptions&) {
  int64_t elements = 0;
  for (const auto& op : ops) elements += op.tensor.numel();
  return record_call(OpName::batch_op_issue, -1, elements);
}
WorkPtr TorchCommFake::broadcast(at::Tensor& tensor, int root, bool, const BroadcastOptions&) {
  return record_call(OpName::broadcast, root, tensor.numel());
}
WorkPtr TorchCommFake::all_reduce(at::Tensor& tensor, const ReduceOp&, bool,
                                  const AllReduceOptions&) {
  return record_call(OpName::all_reduce, -1, tensor.numel());
}
WorkPtr TorchCommFake::reduce(at::Tensor& tensor, int root, const ReduceOp&, bool,
                              const ReduceOptions&) {
  return record_call(OpName::reduce, root, tensor.numel());
}
WorkPtr TorchCommFake::all_gather(const Tensors&, const at::Tensor& input, bool,
                                  const AllGatherOptions&) {
  return record_call(OpName::all_gather, -1, input.numel());
}
WorkPtr TorchCommFake::all_gather_v(const Tensors&, const at::Tensor& input, bool,
                                    const AllGatherOptions&) {
  return record_call(OpName::all_gather_v, -1, input.numel());
}
WorkPtr TorchCommFake::all_gather_single(at::Tensor&, const at::Tensor& input, bool,
                                         const AllGatherSingleOptions&) {
  return record_call(OpName::all_gather_single, -1, input.numel());
}
WorkPtr TorchCommFake::reduce_scatter(at::Tensor& output, const Tensors&, const ReduceOp&, bool,
                                      const ReduceScatterOptions&) {
  return record_call(OpName::reduce_scatter, -1, output.numel());
}
WorkPtr TorchCommFake::reduce_scatter_v(at::Tensor& output, const Tensors&, const ReduceOp&, bool,
                                        const ReduceScatterOptions&) {
  return record_call(OpName::reduce_scatter_v, -1, output.numel());
}
WorkPtr TorchCommFake::reduce_scatter_single(at::Tensor& output, const at::Tensor&, const ReduceOp&,
                                             bool, const ReduceScatterSingleOptions&) {
  return record_call(OpName::reduce_scatter_single, -1, output.numel());
}
WorkPtr TorchCommFake::all_to_all_single(at::Tensor&, const at::Tensor& input, bool,
                                         const AllToAllSingleOptions&) {
  return record_call(OpName::all_to_all_single, -1, input.numel());
}
WorkPtr TorchCommFake::all_to_all_v_single(at::Tensor&, const at::Tensor& input, const Splits&,
                                           const Splits&, bool, const AllToAllvSingleOptions&) {
  return record_call(OpName::all_to_all_v_single, -1, input.numel());
}
WorkPtr TorchCommFake::all_to_all(const Tensors&, const Tensors& input, bool,
                                  const AllToAllOptions&) {
  return record_call(OpName::all_to_all, -1, total(input));
}
WorkPtr TorchCommFake::barrier(bool, const BarrierOptions&) {
  return record_call(OpName::barrier, -1, 0);
}
WorkPtr TorchCommFake::scatter(at::Tensor& output, const Tensors&, int root, bool,
                               const ScatterOptions&) {
  return record_call(OpName::scatter, root, output.numel());
}
WorkPtr TorchCommFake::gather(const Tensors&, const at::Tensor& input, int root, bool,
                              const GatherOptions&) {
  return record_call(OpName::gather, root, input.numel());
}
WorkPtr TorchCommFake::gather_single(at::Tensor&, const at::Tensor& input, int root, bool,
                                     const GatherSingleOptions&) {
  return record_call(OpName::gather_single, root, input.numel());
}

std::shared_ptr<TorchCommBackend> TorchCommFake::split(const std::vector<int>&,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  auto child = std::make_shared<TorchCommFake>();
  child->init(device_, name, options);
  return child;
}

}  // namespace torch::comms
