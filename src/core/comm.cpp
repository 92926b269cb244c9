#include <torchcomms/comm.hpp>

#include <cstdlib>

#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>
#include <torchcomms/health_check.hpp>

#include "base/fork.hpp"
#include "base/issued_number.hpp"
#include "base/log.hpp"
#include "base/op_order.hpp"
#include "base/recycled.hpp"
#include "core/bounded.hpp"
#include "core/checked_window.hpp"
#include "core/device_of.hpp"
#include "core/explain.hpp"
#include "core/hint.hpp"
#include "core/hook_list.hpp"
#include "core/insight.hpp"
#include "core/issue.hpp"
#include "core/making.hpp"
#include "core/part.hpp"
#include "core/presence.hpp"
#include "core/profiler_record.hpp"
#include "core/record.hpp"
#include "core/staging.hpp"
#include "core/unmet.hpp"
#include "core/validate.hpp"
#include "core/witness.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms {
namespace {

std::atomic<size_t> next_op_id{0};
std::atomic<int64_t> next_hook_id{0};

uint64_t record_begin(const base::OpRecord& record, Witness* witness) noexcept {
  if (witness != nullptr) witness->begins(record);
  return tracing::process_ring().record({.time_ns = tracing::now_ns(),
                                         .thread = tracing::this_thread(),
                                         .phase = tracing::Phase::kBegin,
                                         .op = record});
}

// `error`: null where it went well.
void record_end(const base::OpRecord& record, Witness* witness,
                const std::exception_ptr& error = nullptr) noexcept {
  if (witness != nullptr) witness->ends(record);
  tracing::process_ring().record({.time_ns = tracing::now_ns(),
                                  .thread = tracing::this_thread(),
                                  .phase = tracing::Phase::kEnd,
                                  .ok = !error,
                                  .error = error_number(error),
                                  .op = record});
}

// Of a work that has ended.
void record_end(const base::OpRecord& record, Witness* witness, const TorchWork& work) noexcept {
  if (work.status() == WorkStatus::COMPLETED) return record_end(record, witness);
  auto error = work.error();
  if (!error) error = std::make_exception_ptr(std::runtime_error("no reason was kept"));
  record_end(record, witness, error);
}

// Writes the end of an operation, from inside of the transition, while the work is alive.
struct AtEnd : base::Recycled<AtEnd> {
  AtEnd(const base::OpRecord& record, TorchWork* work, std::shared_ptr<Unmet> unmet,
        std::shared_ptr<Witness> witness)
      : record(record), work(work), unmet(std::move(unmet)), witness(std::move(witness)) {}
  void operator()() const {
    record_end(record, witness.get(), *work);
    if (work->status() != WorkStatus::COMPLETED && unmet) unmet->watch(*work);
  }
  const base::OpRecord record;
  TorchWork* const work;
  const std::shared_ptr<Unmet> unmet;
  const std::shared_ptr<Witness> witness;
};

// Of one call. A backend from elsewhere may read what nobody here knows of.
void tell_of_unread(TorchCommBackend& backend, const Hints& hints) {
  if (!hints.empty() && dynamic_cast<Insight*>(&backend) != nullptr) tell_of_unknown(hints);
}

}  // namespace

struct TorchComm::Hooks {
  // Those around one operation: whoever sees its beginning sees its end, whatever that is.
  class Around;

  HookList<PreHook> pre;
  HookList<PostHook> post;
  HookList<UnpostedHook> unposted;
};

class TorchComm::Hooks::Around {
 public:
  Around(const Hooks& hooks, size_t op_id) : hooks_(hooks), op_id_(op_id) {}
  Around(const Around&) = delete;
  Around& operator=(const Around&) = delete;
  ~Around() {
    if (unposted_ && !hooks_.unposted.empty()) hooks_.unposted.call(op_id_, *unposted_);
  }

  template <class Op>
  void pre(const Op& op) {
    if (!hooks_.pre.empty()) hooks_.pre.call(op_id_, PreHookArgs(op));
    unposted_ = Unposted::kRaised;
  }
  template <class MakeArgs>
  void post(const MakeArgs& make_args) {
    if (!hooks_.post.empty()) hooks_.post.call(op_id_, PostHookArgs(make_args()));
    unposted_.reset();
  }
  void left() { unposted_ = Unposted::kLeft; }

 private:
  const Hooks& hooks_;
  const size_t op_id_;
  std::optional<Unposted> unposted_ = Unposted::kRefused;
};

void resetGlobalOpIdGenerator() { next_op_id.store(0); }

std::shared_ptr<TorchComm> TorchComm::wrap(std::shared_ptr<TorchCommBackend> backend,
                                           std::string backend_name) {
  return std::shared_ptr<TorchComm>(new TorchComm(std::move(backend), std::move(backend_name)));
}

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend, std::string backend_name,
                     const TorchComm* parent)
    : backend_(std::move(backend)),
      backend_name_(std::move(backend_name)),
      capabilities_(backend_->capabilities()),
      name_(backend_->getCommName()),
      fork_generation_(base::fork_generation()),
      presence_(std::make_unique<Presence>()),
      hooks_(std::make_shared<Hooks>()) {
  if (parent)
    rank_in_job_ = parent->membership_ ? -1 : parent->rank_in_job_;
  else if (backend_->isInitialized())
    rank_in_job_ = rank_in_larger_job(backend_->getSize());
  refreshMembership();
  const auto& options = backend_->getOptions();
  recovers_ = options.enable_reconfigure;
  if (capabilities_.ends_process && !recovers_)
    unmet_ = std::make_shared<Unmet>(
        name_, options.abort_process_on_timeout_or_error ? abort_grace() : Unmet::kNever,
        [weak = std::weak_ptr<TorchCommBackend>(backend_)] {
          TorchCommsHealthCheck::get().setEnding();
          if (const auto backend = weak.lock()) backend->announceAbort();
        },
        [] { std::abort(); });
  if (auto* const insight = dynamic_cast<Insight*>(backend_.get()); insight && unmet_)
    insight->on_unseen_failure([weak = std::weak_ptr<Unmet>(unmet_)](TorchWork& work) {
      if (const auto unmet = weak.lock()) unmet->watch(work);
    });
}

TorchComm::~TorchComm() {
  if (isForked()) {
    // A forked child has neither the backend's threads nor a right to the parent's connections: let
    // go of the object without running its destructor.
    static_cast<void>(new std::shared_ptr<TorchCommBackend>(std::move(backend_)));
    return;
  }
  if (unmet_) unmet_->met();  // nobody can look any more
  tracing::process_ring().end_communicator(record_id_, finalized_);
  if (!finalized_)
    base::log(base::LogLevel::kInfo, "communicator '" + name_ + "' ends without finalize()");
}

void TorchComm::refreshMembership(std::optional<int64_t> uuid) {
  const bool connected = backend_->isInitialized();
  rank_ = connected ? backend_->getRank() : -1;
  size_ = connected ? backend_->getSize() : -1;
  membership_ = connected ? uuid : std::nullopt;
  why_unconnected_.clear();
  // Whoever joins has counted nothing before, so all begin anew.
  if (order_) tracing::process_ring().end_communicator(record_id_, true);
  order_ = std::make_unique<base::OpOrder>();
  record_id_ = tracing::record_communicator({.name = name_,
                                             .backend = backend_name_,
                                             .rank = rank_,
                                             .size = size_,
                                             .members = globalRanks(),
                                             .membership = membership_,
                                             .rank_in_job = rank_in_job_.value_or(-1)},
                                            record_vocabulary());
  if (auto* const insight = dynamic_cast<Insight*>(backend_.get())) witness_ = insight->witness();
}

std::vector<int> TorchComm::globalRanks() const {
  // Ranks after a reconfigure() are new ones, and name no process.
  if (size_ < 0 || membership_ || rank_in_job_) return {};
  return backend_->getRanks();
}

void TorchComm::number(base::OpRecord& record, size_t op_id) {
  record.comm = record_id_;
  record.sequence = ++sequence_;
  record.op_id = op_id;
  switch (static_cast<OpName>(record.kind)) {
    case OpName::send:
      record.order = order_->message(rank_, record.root_or_peer, size_);
      break;
    case OpName::recv:
      record.order = order_->message(record.root_or_peer, rank_, size_);
      break;
    case OpName::batch_op_issue:
      record.order = order_->batch();
      break;
    case OpName::split:
      record.order = capabilities_.counts_splits ? order_->collective() : order_->split();
      break;
    default:
      record.order = order_->collective();
  }
}

bool TorchComm::isForked() const { return fork_generation_ != base::fork_generation(); }

void TorchComm::requireOwnProcess(std::string_view op) const {
  if (!isForked()) return;
  throw CommError(Errc::kForked,
                  "this communicator was made before fork(); make a new one in the child",
                  {.op = std::string(op), .comm = name_, .rank = rank_});
}

void TorchComm::requireUsable(std::string_view op) const {
  requireOwnProcess(op);
  if (finalized_ && capabilities_.final_finalize)
    throw CommError(Errc::kFinalized, "the communicator is not initialized: finalize() was called",
                    {.op = std::string(op), .comm = name_, .rank = rank_});
  if (size_ < 0) refuseUnconnected(op);
}

void TorchComm::refuseUnconnected(std::string_view op) const {
  if (!capabilities_.reconfigure) {  // it does not know its place, and says why
    backend_->getRank();
    backend_->getSize();
  }
  throw CommError(
      Errc::kFinalized,
      "the communicator is not initialized: call reconfigure() first" + why_unconnected_,
      {.op = std::string(op), .comm = name_, .rank = rank_});
}

std::string TorchComm::standing() const {
  if (isForked()) return "made before fork()";
  if (finalized_ && capabilities_.final_finalize) return "finalized";
  if (size_ < 0) return "not connected";
  const auto place = "rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  return backend_->isAborted() ? place + ", ended" : place;
}

CommFacts TorchComm::facts() const { return {rank_, size_, capabilities_, backend_name_, name_}; }

template <class Op>
ProfiledOperation TorchComm::shown(const Op& op, const base::OpRecord& record) const {
  auto described = profiled_operation(op, record);
  if (described.rank < 0) described.rank = rank_;
  described.comm = name_;
  described.backend = backend_name_;
  described.size = size_;
  described.ranks = backend_->getRanks();
  return described;
}

void TorchComm::settle() {
  if (staging_) staging_->hand_over();
}

namespace {

// What a backend is asked before it gets the operation.
template <class Op>
TorchCommBackend::OnDevice asked_of(const Op& op) {
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
WorkPtr TorchComm::hand(const Op& op) {
  if (!capabilities_.staging) return issue(*backend_, op);
  const auto own = [this] { return backend_->getDevice(); };
  const auto device = device_of(op, own);
  // Each time: with other members a backend may have what it had not before.
  if (auto* const there = backend_->onDevice(device, asked_of(op))) {
    if (is_all_on(op, device.type())) return issue(*there, op);
    throw CommError(Errc::kInvalidArgument,
                    "some of its tensors are on " + device.str() +
                        ", others are not; they must be on one device",
                    {.op = std::string(opToString(Op::kName)), .comm = name_, .rank = rank_});
  }
  if (!staging_) {
    if (device.is_cpu()) return issue(*backend_, op);
    staging_ = Staging::open(backend_, own().is_cpu() ? device : own(), rank_);
  }
  return staging_->run(op);
}

template <class Op>
WorkPtr TorchComm::run(const Op& op) {
  const Presence::Here here(*presence_);
  requireUsable(Op::kName);
  validate(op, facts());
  tell_of_unread(*backend_, op.options.hints);

  const size_t op_id = next_op_id.fetch_add(1, std::memory_order_relaxed);
  Hooks::Around hooks(*hooks_, op_id);
  hooks.pre(op);

  base::OpRecord record = make_record(op);
  number(record, op_id);
  const ProfilerRecord profiled([&] { return shown(op, record); });
  const uint64_t begin = record_begin(record, witness_.get());
  WorkPtr work;
  try {
    const base::IssuedNumber issued(record.order);
    work = hand(op);
  } catch (...) {
    record_end(record, witness_.get(), std::current_exception());
    if (unmet_) unmet_->met();
    throw;
  }
  if (isTerminal(work->status())) {
    record_end(record, witness_.get(), *work);
  } else {
    if (work->status() == WorkStatus::NOT_STARTED)
      work->registerWorkStartHook(
          [begin] { tracing::process_ring().entered(begin, tracing::now_ns()); });
    work->registerWorkEndHook(AtEnd(record, work.get(), unmet_, witness_));
  }

  hooks.post([&] {
    // A hook may attach itself to the work, so it must not be the one that all calls share.
    if (work.get() == completedWork().get()) work = c10::make_intrusive<TorchWorkCompleted>();
    using Args = std::conditional_t<std::is_same_v<Op, BatchOpIssue>, BatchOpIssuePostHookArgs,
                                    CollectivePostHookArgs>;
    return Args{c10::weak_intrusive_ptr<TorchWork>(work)};
  });
  return work;
}

void TorchComm::leave() {
  finalized_ = false;  // nothing is released
  static_cast<void>(new std::shared_ptr<TorchCommBackend>(backend_));
  static_cast<void>(staging_.release());
  base::log(
      base::LogLevel::kInfo,
      "communicator '" + name_ + "' ends with the process: a thread is still in a call of it");
}

void TorchComm::finalize() {
  if (isForked()) return;
  if (finalized_ && capabilities_.final_finalize)
    throw CommError(Errc::kFinalized, "the communicator is already finalized",
                    {.op = "finalize", .comm = name_, .rank = rank_});
  if (!hooks_->pre.empty()) hooks_->pre.call(kFinalizeOpId, PreHookArgs(Finalize{}));
  // Before the backend has its say: a failure that it reports leaves the communicator finalized.
  finalized_ = true;
  try {
    if (!presence_->await_others(check_interrupt, host_ends)) return leave();
  } catch (const Interrupted& e) {
    finalized_ = false;  // nothing has been released
    e.rethrow_cause();
  }
  tracing::process_ring().end_communicator(record_id_, true);
  const auto pending = unmet_ ? unmet_->met() : nullptr;
  if (staging_) staging_->drain();
  backend_->finalize();
  staging_.reset();
  if (!hooks_->post.empty()) hooks_->post.call(kFinalizeOpId, PostHookArgs(FinalizePostHookArgs{}));
  if (pending) std::rethrow_exception(pending);
}

int TorchComm::known(std::string_view op, int place) const {
  if (place < 0 && !capabilities_.place_before_members) refuseUnconnected(op);
  return place;
}
int TorchComm::getRank() const { return known("get_rank", backend_->getRank()); }
int TorchComm::getSize() const { return known("get_size", backend_->getSize()); }
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
auto TorchComm::make(const Op& op, const Make& make, const Post& post) {
  const size_t op_id = next_op_id.fetch_add(1, std::memory_order_relaxed);
  Hooks::Around hooks(*hooks_, op_id);
  hooks.pre(op);

  base::OpRecord record = make_record(op);
  number(record, op_id);
  const ProfilerRecord profiled([&] { return shown(op, record); });
  record_begin(record, witness_.get());
  decltype(make()) made;
  try {
    const base::IssuedNumber issued(record.order);
    made = make();
  } catch (...) {
    record_end(record, witness_.get(), std::current_exception());
    throw;
  }
  record_end(record, witness_.get());
  if (made)
    hooks.post([&] { return post(made); });
  else
    hooks.left();
  return made;
}

template <class Make>
std::shared_ptr<TorchCommWindow> TorchComm::makeWindow(bool registered, const Make& make_inner) {
  settle();
  const auto guard = [self = shared_from_this()](std::string_view method) {
    self->requireUsable(method);
    self->settle();
    return self->facts();
  };
  return make(
      NewWindow{}, [&] { return checked_window(make_inner(), guard, registered); },
      [](const auto& window) { return NewWindowPostHookArgs{window}; });
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks, const std::string& name,
                                            const CommOptions& options) {
  const Presence::Here here(*presence_);
  requireUsable(OpName::split);
  const Split op{ranks, name, options};
  validate(op, facts());
  settle();
  return make(
      op,
      [&]() -> std::shared_ptr<TorchComm> {
        auto backend = [&] {
          std::optional<Making> making;
          if (!capabilities_.counts_splits && !ranks.empty())
            making.emplace(name, backend_name_, ranks, rank_, globalRanks());
          return backend_->split(ranks, name, options);
        }();
        if (!backend) return nullptr;
        std::shared_ptr<TorchComm> child(new TorchComm(std::move(backend), backend_name_, this));
        // reconfigure() of this one ends it, which must not end the process.
        if (recovers_) {
          child->recovers_ = true;
          child->unmet_.reset();
        }
        return child;
      },
      [](const auto& comm) { return SplitPostHookArgs{comm}; });
}

std::shared_ptr<TorchCommWindow> TorchComm::new_window(const std::optional<at::Tensor>& tensor) {
  const Presence::Here here(*presence_);
  requireUsable(OpName::new_window);
  if (tensor && backend_->supportsWindow()) validate_window_tensor("new_window", *tensor, facts());
  return makeWindow(tensor.has_value(), [&] { return backend_->new_window(tensor); });
}

std::shared_ptr<TorchCommWindow> TorchComm::window_allocate(size_t size_bytes, bool cpu_buf,
                                                            std::optional<size_t> signal_size) {
  constexpr size_t kSlots = 256;
  const Presence::Here here(*presence_);
  requireUsable("window_allocate");
  return makeWindow(true, [&] {
    return backend_->window_allocate(size_bytes, cpu_buf, signal_size.value_or(kSlots));
  });
}

TorchComm::AllGatherPHandle TorchComm::all_gather_p_init(at::Tensor& output,
                                                         const AllGatherPInitOptions& options) {
  const Presence::Here here(*presence_);
  requireUsable("all_gather_p_init");
  return backend_->all_gather_p_init(output, options);
}
WorkPtr TorchComm::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input,
                                     bool async_op, const AllGatherPExecOptions& options) {
  const Presence::Here here(*presence_);
  requireUsable("all_gather_p_exec");
  auto work = backend_->all_gather_p_exec(handle, input, async_op, options);
  // Without hooks and records; but a failure of it has to be met as any other.
  if (unmet_ && !isTerminal(work->status()))
    work->registerWorkEndHook([ended = work.get(), unmet = unmet_] {
      if (ended->status() != WorkStatus::COMPLETED) unmet->watch(*ended);
    });
  return work;
}
void TorchComm::all_gather_p_free(AllGatherPHandle handle) {
  requireOwnProcess("all_gather_p_free");
  backend_->all_gather_p_free(handle);
}

std::shared_ptr<c10::Allocator> TorchComm::getMemAllocator() const {
  return get_mem_allocator(backend_name_);
}
void TorchComm::tensor_register(const at::Tensor& tensor) {
  requireOwnProcess("tensor_register");
  backend_->tensor_register(tensor);
}
void TorchComm::tensor_deregister(const at::Tensor& tensor) {
  requireOwnProcess("tensor_deregister");
  backend_->tensor_deregister(tensor);
}
int64_t TorchComm::get_device_transport() {
  requireOwnProcess("get_device_transport");
  return backend_->get_device_transport();
}

InitHandle TorchComm::getInitHandle() const {
  requireOwnProcess("get_init_handle");
  return backend_->getInitHandle();
}
WorkPtr TorchComm::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = rank_};
  requireOwnProcess(context.op);
  if (finalized_ && capabilities_.final_finalize)
    throw CommError(Errc::kFinalized, "finalize() was called", context);
  settle();
  WorkPtr work;
  try {
    work = backend_->reconfigure(options);
  } catch (const CommError&) {
    throw;  // a wrong call has changed nothing
  } catch (...) {
    refreshMembership(options.uuid);  // it was interrupted, whatever it had come to
    throw;
  }
  refreshMembership(options.uuid);
  if (const auto error = work->error()) try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      why_unconnected_ = std::string("; the last one failed: ") + e.what();
    }
  return work;
}
void TorchComm::abort() {
  if (isForked()) return;  // nothing of it is this process's
  if (unmet_) unmet_->met();
  backend_->abort();
}
bool TorchComm::isAbortSupported() const { return backend_->isAbortSupported(); }
bool TorchComm::isAborted() const { return backend_->isAborted(); }
void TorchComm::setTimeout(std::chrono::milliseconds timeout) {
  requireOwnProcess("set_timeout");
  settle();
  require_limit(timeout, {.op = "set_timeout", .comm = std::string(getCommName()), .rank = rank_});
  backend_->setTimeout(timeout);
}
void TorchComm::setHints(const Hints& hints) {
  requireOwnProcess("set_hints");
  settle();
  backend_->setHints(hints);
}

std::unique_ptr<RemovableHandle> TorchComm::registerPreHook(PreHook hook) {
  const auto id = hooks_->pre.add(std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<Hooks>(hooks_), id] {
    if (const auto hooks = weak.lock()) hooks->pre.remove(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerPostHook(PostHook hook) {
  const auto id = hooks_->post.add(std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<Hooks>(hooks_), id] {
    if (const auto hooks = weak.lock()) hooks->post.remove(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerUnpostedHook(UnpostedHook hook) {
  const auto id = hooks_->unposted.add(std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<Hooks>(hooks_), id] {
    if (const auto hooks = weak.lock()) hooks->unposted.remove(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerAbortHook(AbortHook hook) {
  const auto id = next_hook_id.fetch_add(1);
  backend_->registerAbortHook(id, std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<TorchCommBackend>(backend_), id] {
    if (const auto backend = weak.lock()) backend->unregisterAbortHook(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerGraphReplayHook(GraphReplayHook hook) {
  const auto id = next_hook_id.fetch_add(1);
  backend_->registerGraphReplayHook(id, std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<TorchCommBackend>(backend_), id] {
    if (const auto backend = weak.lock()) backend->unregisterGraphReplayHook(id);
  });
}

std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                    const std::string& name, const CommOptions& options) {
  const Making making(name, backend, options);
  return TorchComm::wrap(TorchCommFactory::get().create_backend(backend, device, name, options),
                         backend);
}

std::shared_ptr<c10::Allocator> get_mem_allocator(const std::string& backend) {
  return TorchCommFactory::get().get_allocator(backend);
}

}  // namespace torch::comms
