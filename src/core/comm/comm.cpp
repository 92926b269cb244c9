#include <torchcomms/comm.hpp>

#include <c10/util/ScopeExit.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "base/concurrency/freelist.hpp"
#include "base/current_sequence.hpp"
#include "base/op_order.hpp"
#include "core/backend/backend_diagnostics.hpp"
#include "core/comm/active_calls.hpp"
#include "core/comm/comm_hooks.hpp"
#include "core/comm/dispatch.hpp"
#include "core/comm/tensor_device.hpp"
#include "core/comm/validate.hpp"
#include "core/observe/init_record.hpp"
#include "core/observe/observed_operation.hpp"
#include "core/observe/profiler_record.hpp"
#include "core/options/hint.hpp"
#include "core/staging/staging.hpp"
#include "core/window/checked_window.hpp"
#include "core/work/unobserved_failure.hpp"

namespace torch::comms {
namespace {

std::atomic<size_t> next_op_id{0};

// Records the start and the end of an asynchronous operation.
class WorkCompletionRecorder final : public WorkObserver,
                                     public base::FreelistAllocated<WorkCompletionRecorder> {
 public:
  WorkCompletionRecorder(const ObservedOperation& operation,
                         std::shared_ptr<UnobservedFailureGuard> failure_guard)
      : operation_(operation), failure_guard_(std::move(failure_guard)) {}
  void started(TorchWork&) noexcept override { operation_.mark_started(); }
  void ended(TorchWork& work) noexcept override {
    operation_.end(work);
    if (work.status() != WorkStatus::COMPLETED && failure_guard_) failure_guard_->arm(work);
  }

 private:
  const ObservedOperation operation_;
  const std::shared_ptr<UnobservedFailureGuard> failure_guard_;
};

// Warns about unknown hints of one call. An external backend may read hints that are not in the
// table, so it causes no warning.
void warn_unknown_call_hints(TorchCommBackend& backend, const Hints& hints) {
  if (!hints.empty() && dynamic_cast<BackendDiagnostics*>(&backend) != nullptr)
    warn_unknown_hints(hints);
}

}  // namespace

void resetGlobalOpIdGenerator() { next_op_id.store(0); }

void TorchComm::assign_sequence(base::OpRecord& record, size_t op_id) {
  record.comm = record_id_;
  record.sequence = ++sequence_;
  record.op_id = op_id;
  switch (static_cast<OpName>(record.kind)) {
    case OpName::send:
      record.matching_sequence = order_->next_message(rank_, record.root_or_peer, size_);
      break;
    case OpName::recv:
      record.matching_sequence = order_->next_message(record.root_or_peer, rank_, size_);
      break;
    case OpName::batch_op_issue:
      record.matching_sequence = order_->next_batch();
      break;
    case OpName::split:
      record.matching_sequence =
          capabilities_.counts_splits ? order_->next_collective() : order_->next_split();
      break;
    default:
      record.matching_sequence = order_->next_collective();
  }
}

CommFacts TorchComm::facts() const { return {rank_, size_, capabilities_, backend_name_, name_}; }

template <class Op>
ProfiledOperation TorchComm::profiler_metadata(const Op& op, const base::OpRecord& record) const {
  auto described = profiled_operation(op, record);
  if (described.rank < 0) described.rank = rank_;
  described.comm = name_;
  described.backend = backend_name_;
  described.size = size_;
  described.ranks = backend_->getRanks();
  return described;
}

void TorchComm::flush_staging() {
  if (staging_) staging_->flush();
}

namespace {

// Returns: the query by which the backend decides where to run the operation.
template <class Op>
TorchCommBackend::OnDevice device_query_of(const Op& op) {
  TorchCommBackend::OnDevice asked{Op::kName, nullptr, at::kByte, &op.options.hints};
  if constexpr (requires { op.op.type(); }) {
    asked.reduction = &op.op;
    if constexpr (requires { op.tensor.scalar_type(); })
      asked.dtype = op.tensor.scalar_type();
    else
      asked.dtype = op.output.scalar_type();
  }
  return asked;
}

}  // namespace

template <class Op>
WorkPtr TorchComm::dispatch_or_stage(const Op& op) {
  if (!capabilities_.staging) return dispatch(*backend_, op);
  const auto own = [this] { return backend_->getDevice(); };
  const auto device = device_of(op, own);
  // The communicator asks each time, because the answer may change with the members.
  if (auto* const there = backend_->onDevice(device, device_query_of(op))) {
    if (all_on_device(op, device.type())) return dispatch(*there, op);
    throw CommError(Errc::kInvalidArgument,
                    "some tensors are on " + device.str() +
                        " and others are not; all tensors of a call must be on one device",
                    {.op = std::string(opToString(Op::kName)), .comm = name_, .rank = rank_});
  }
  if (!staging_) {
    if (device.is_cpu()) return dispatch(*backend_, op);
    staging_ = Staging::open(backend_, own().is_cpu() ? device : own(), rank_);
  }
  return staging_->run(op);
}

template <class Op>
void TorchComm::run_pre_hooks(const Op& op, size_t op_id) {
  try {
    hooks_->pre.call(op_id, PreHookArgs(op));
  } catch (...) {
    if (hooks_->observers.empty()) throw;
    // The peers do not count this operation, so it gives its numbers back.
    const auto give_back =
        c10::make_scope_exit([this, order = *order_, sequence = sequence_]() mutable {
          *order_ = std::move(order);
          sequence_ = sequence;
        });
    base::OpRecord record = make_record(op);
    assign_sequence(record, op_id);
    const auto observers = hooks_->observers.snapshot();
    for (const auto& [id, observer] : *observers) observer->on_refused(record, Operation(op));
    throw;
  }
}

template <class Op>
WorkPtr TorchComm::run(const Op& op) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireUsable(Op::kName);
  validate(op, facts());
  warn_unknown_call_hints(*backend_, op.options.hints);

  const size_t op_id = next_op_id.fetch_add(1, std::memory_order_relaxed);
  if (!hooks_->pre.empty()) run_pre_hooks(op, op_id);

  ObservedOperation observed(op, hooks_->observers);
  assign_sequence(observed.record, op_id);
  const ProfilerRecord profiled([&] { return profiler_metadata(op, observed.record); });
  observed.begin(op);
  WorkPtr work;
  try {
    const base::ScopedSequence issued(observed.record.matching_sequence);
    work = dispatch_or_stage(op);
  } catch (...) {
    observed.end(std::current_exception());
    if (failure_guard_) failure_guard_->mark_observed();
    throw;
  }
  if (isTerminal(work->status())) {
    observed.end(*work);
    if (failure_guard_ && work->status() != WorkStatus::COMPLETED) failure_guard_->arm(*work);
  } else {
    work->observe(std::make_unique<WorkCompletionRecorder>(observed, failure_guard_));
    // observe() does not show a start that came before it.
    if (work->status() == WorkStatus::INPROGRESS) observed.show_start();
  }

  if (!hooks_->post.empty()) {
    // A hook may attach itself to the work, so the work must not be the one that all calls share.
    if (work.get() == completedWork().get()) work = c10::make_intrusive<TorchWorkCompleted>();
    using Args = std::conditional_t<std::is_same_v<Op, BatchOpIssue>, BatchOpIssuePostHookArgs,
                                    CollectivePostHookArgs>;
    hooks_->post.call(op_id, PostHookArgs(Args{c10::weak_intrusive_ptr<TorchWork>(work)}));
  }
  return work;
}

int TorchComm::require_connected(std::string_view op, int place) const {
  if (place < 0 && !capabilities_.place_before_members) refuseUnconnected(op);
  return place;
}
int TorchComm::getRank() const { return require_connected("get_rank", backend_->getRank()); }
int TorchComm::getSize() const { return require_connected("get_size", backend_->getSize()); }
std::vector<int> TorchComm::getRanks() const { return backend_->getRanks(); }
std::string_view TorchComm::getCommName() const { return backend_->getCommName(); }
const CommOptions& TorchComm::getOptions() const { return backend_->getOptions(); }
const at::Device& TorchComm::getDevice() const { return backend_->getDevice(); }
std::string_view TorchComm::getBackendVersion() const { return backend_->getBackendVersion(); }

WorkPtr TorchComm::send(const at::Tensor& tensor, int dst, bool async_op,
                        const SendOptions& options) {
  return run(Send{tensor, dst, async_op, options});
}
WorkPtr TorchComm::recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) {
  return run(Recv{tensor, src, async_op, options});
}
WorkPtr TorchComm::broadcast(at::Tensor& tensor, int root, bool async_op,
                             const BroadcastOptions& options) {
  return run(Broadcast{tensor, root, async_op, options});
}
WorkPtr TorchComm::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                              const AllReduceOptions& options) {
  return run(AllReduce{tensor, op, async_op, options});
}
WorkPtr TorchComm::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                          const ReduceOptions& options) {
  return run(Reduce{tensor, root, op, async_op, options});
}
WorkPtr TorchComm::all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                              const AllGatherOptions& options) {
  return run(AllGather{tensor_list, tensor, async_op, options});
}
WorkPtr TorchComm::all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                                const AllGatherOptions& options) {
  return run(AllGatherV{tensor_list, tensor, async_op, options});
}
WorkPtr TorchComm::all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                     const AllGatherSingleOptions& options) {
  return run(AllGatherSingle{output, input, async_op, options});
}
WorkPtr TorchComm::reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                                  bool async_op, const ReduceScatterOptions& options) {
  return run(ReduceScatter{output, input_list, op, async_op, options});
}
WorkPtr TorchComm::reduce_scatter_v(at::Tensor& output, const Tensors& input_list,
                                    const ReduceOp& op, bool async_op,
                                    const ReduceScatterOptions& options) {
  return run(ReduceScatterV{output, input_list, op, async_op, options});
}
WorkPtr TorchComm::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                         const ReduceOp& op, bool async_op,
                                         const ReduceScatterSingleOptions& options) {
  return run(ReduceScatterSingle{output, input, op, async_op, options});
}
WorkPtr TorchComm::all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                     const AllToAllSingleOptions& options) {
  return run(AllToAllSingle{output, input, async_op, options});
}
WorkPtr TorchComm::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                       const Splits& output_split_sizes,
                                       const Splits& input_split_sizes, bool async_op,
                                       const AllToAllvSingleOptions& options) {
  return run(
      AllToAllVSingle{output, input, output_split_sizes, input_split_sizes, async_op, options});
}
WorkPtr TorchComm::all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                              bool async_op, const AllToAllOptions& options) {
  return run(AllToAll{output_tensor_list, input_tensor_list, async_op, options});
}
WorkPtr TorchComm::barrier(bool async_op, const BarrierOptions& options) {
  return run(Barrier{async_op, options});
}
WorkPtr TorchComm::scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                           bool async_op, const ScatterOptions& options) {
  return run(Scatter{output_tensor, input_tensor_list, root, async_op, options});
}
WorkPtr TorchComm::gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor,
                          int root, bool async_op, const GatherOptions& options) {
  return run(Gather{output_tensor_list, input_tensor, root, async_op, options});
}
WorkPtr TorchComm::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                 bool async_op, const GatherSingleOptions& options) {
  return run(GatherSingle{output, input, root, async_op, options});
}

BatchSendRecv TorchComm::batch_op_create() { return BatchSendRecv(shared_from_this()); }
WorkPtr TorchComm::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                  const BatchP2POptions& options) {
  return run(BatchOpIssue{ops, ops.size(), async_op, options});
}

template <class Op, class Make, class Post>
auto TorchComm::run_constructing(const Op& op, const Make& make, const Post& post) {
  const size_t op_id = next_op_id.fetch_add(1, std::memory_order_relaxed);
  if (!hooks_->pre.empty()) run_pre_hooks(op, op_id);

  ObservedOperation observed(op, hooks_->observers);
  assign_sequence(observed.record, op_id);
  const ProfilerRecord profiled([&] { return profiler_metadata(op, observed.record); });
  observed.begin(op);
  decltype(make()) result;
  try {
    const base::ScopedSequence issued(observed.record.matching_sequence);
    result = make();
  } catch (...) {
    observed.end(std::current_exception());
    if (failure_guard_) failure_guard_->mark_observed();
    throw;
  }
  observed.end();
  if (result && !hooks_->post.empty()) hooks_->post.call(op_id, PostHookArgs(post(result)));
  return result;
}

template <class Make>
std::shared_ptr<TorchCommWindow> TorchComm::makeWindow(bool registered, const Make& make_inner) {
  flush_staging();
  const WindowGuard guard{[self = shared_from_this()](std::string_view method) {
                            self->requireUsable(method);
                            self->flush_staging();
                            return self->facts();
                          },
                          *active_calls_, failure_guard_};
  return run_constructing(
      NewWindow{}, [&] { return checked_window(make_inner(), guard, registered); },
      [](const auto& window) { return NewWindowPostHookArgs{window}; });
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks, const std::string& name,
                                            const CommOptions& options) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireUsable(OpName::split);
  const Split op{ranks, name, options};
  validate(op, facts());
  flush_staging();
  return run_constructing(
      op,
      [&]() -> std::shared_ptr<TorchComm> {
        auto backend = [&] {
          std::optional<InitRecord> init_record;
          if (!capabilities_.counts_splits && !ranks.empty())
            init_record.emplace(name, backend_name_, ranks, rank_, globalRanks());
          return backend_->split(ranks, name, options);
        }();
        if (!backend) return nullptr;
        std::shared_ptr<TorchComm> child(new TorchComm(std::move(backend), backend_name_, this));
        // A reconfigure() of the parent ends the child, which must not terminate the process.
        if (is_reconfigurable_) {
          child->is_reconfigurable_ = true;
          child->failure_guard_.reset();
        }
        const auto observers = hooks_->observers.snapshot();
        for (const auto& [id, observer] : *observers) observer->on_split(child);
        return child;
      },
      [](const auto& comm) { return SplitPostHookArgs{comm}; });
}

std::shared_ptr<TorchCommWindow> TorchComm::new_window(const std::optional<at::Tensor>& tensor) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireUsable(OpName::new_window);
  if (tensor && backend_->supportsWindow()) validate_window_tensor("new_window", *tensor, facts());
  return makeWindow(tensor.has_value(), [&] { return backend_->new_window(tensor); });
}

std::shared_ptr<TorchCommWindow> TorchComm::window_allocate(size_t size_bytes, bool cpu_buf,
                                                            std::optional<size_t> signal_size) {
  constexpr size_t kSlots = 256;
  const ActiveCalls::CallScope here(*active_calls_);
  requireUsable("window_allocate");
  return makeWindow(true, [&] {
    return backend_->window_allocate(size_bytes, cpu_buf, signal_size.value_or(kSlots));
  });
}

TorchComm::AllGatherPHandle TorchComm::all_gather_p_init(at::Tensor& output,
                                                         const AllGatherPInitOptions& options) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireUsable("all_gather_p_init");
  return backend_->all_gather_p_init(output, options);
}
WorkPtr TorchComm::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input,
                                     bool async_op, const AllGatherPExecOptions& options) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireUsable("all_gather_p_exec");
  auto work = backend_->all_gather_p_exec(handle, input, async_op, options);
  // This call has no hooks and records, but its failure must be observed like any other.
  if (failure_guard_) failure_guard_->arm_on_failure(*work);
  return work;
}
void TorchComm::all_gather_p_free(AllGatherPHandle handle) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("all_gather_p_free");
  backend_->all_gather_p_free(handle);
}

std::shared_ptr<c10::Allocator> TorchComm::getMemAllocator() const {
  return get_mem_allocator(backend_name_);
}
void TorchComm::tensor_register(const at::Tensor& tensor) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("tensor_register");
  backend_->tensor_register(tensor);
}
void TorchComm::tensor_deregister(const at::Tensor& tensor) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("tensor_deregister");
  backend_->tensor_deregister(tensor);
}
int64_t TorchComm::get_device_transport() {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("get_device_transport");
  return backend_->get_device_transport();
}

std::shared_ptr<c10::Allocator> get_mem_allocator(const std::string& backend) {
  return TorchCommFactory::get().get_allocator(backend);
}

}  // namespace torch::comms
