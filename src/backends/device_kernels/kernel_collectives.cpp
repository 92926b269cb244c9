#include <algorithm>
#include <utility>

#include <ATen/ops/empty_like.h>

#include "backends/device_kernels/kernel_backend.hpp"
#include "backends/device_kernels/kernel_calls.hpp"
#include "backends/device_kernels/registered_buffers.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "backends/nccl/streams/launch.hpp"
#include "base/os/log.hpp"
#include "core/comm/error_context.hpp"

// The collectives that kernels may run. The library runs all others, and what kernels do not
// support.
namespace torch::comms {

using ctran::make_copy_call;
using ctran::make_reduce_call;
using ctran::kernels::Collective;
using ctran::kernels::KernelCall;

namespace {

// How much longer a kernel's timeout is than its operation's, so that the watchdog reports the
// timeout first. Only kernels in graph launches are not watched.
constexpr std::chrono::milliseconds kKernelTimeoutGrace{500};

uint64_t kernel_timeout_ns(std::chrono::milliseconds limit) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(limit + kKernelTimeoutGrace).count());
}

}  // namespace

uint64_t KernelBackend::timeout_ns_of(const nccl::NcclCall& call) {
  return call.has_own_timeout ? kernel_timeout_ns(call.timeout) : ctran::kernels::kControlTimeout;
}

void KernelBackend::set_kernel_timeout() noexcept {
  if (kernels_) kernels_->set_timeout_ns(kernel_timeout_ns(getOptions().timeout));
}

void KernelBackend::setTimeout(std::chrono::milliseconds timeout) {
  NcclApiBackend::setTimeout(timeout);
  set_kernel_timeout();
}

Capabilities KernelBackend::capabilities() const {
  auto can = NcclApiBackend::capabilities();
  can.windows = true;
  return can;
}

void KernelBackend::finalize() {
  set_kernels(nullptr);  // the LaunchQueue keeps them until all operations are done
  NcclApiBackend::finalize();
}

void KernelBackend::set_kernels(std::shared_ptr<ctran::TeamKernels> kernels,
                                ctran::MeasuredRows measured) {
  if (kernels_) kernels_->shared_team()->release_device();
  kernels_ = std::move(kernels);
  workspace_error_.clear();
  late_workspace_bytes_ = 0;
  transport_.reset();
  tuning_rows_ = std::move(measured);
  clear_selection_cache();
}

bool KernelBackend::should_use_kernels(KernelCall& call, const SelectionQuery& query) {
  const bool is_list = query.op == OpName::reduce_scatter || query.op == OpName::reduce_scatter_v;
  if (is_list || !query.options.hints.empty()) return choose(call, query).use_kernels;
  const auto key =
      key_of(call, static_cast<uint64_t>(query.op) << 8 | static_cast<uint64_t>(query.memory) << 4 |
                       static_cast<uint64_t>(query.mode));
  const auto* cached = selection_cache_.find(key);
  if (cached == nullptr) {
    CachedSelection selection{.use_kernels = choose(call, query).use_kernels};
    if (selection.use_kernels && call.algorithm == ctran::kernels::KernelAlgorithm::kAutomatic)
      call.algorithm = kernels_->team().choose_algorithm(call, call.blocks);
    selection.algorithm = call.algorithm;
    selection.blocks = call.blocks;
    cached = &selection_cache_.store(key, selection);
  }
  call.algorithm = cached->algorithm;
  call.blocks = cached->blocks;
  return cached->use_kernels;
}

bool KernelBackend::is_capturing() const {
  const auto& device = launch_queue()->device();
  return !device.is_run_by_host() && device.runtime().capture_of(device.current_stream()) != 0;
}

// Asks the runtime only if the rows distinguish modes.
ctran::kernels::LaunchMode KernelBackend::mode_of(const KernelCall& call) const {
  using ctran::kernels::LaunchMode;
  if (!tuning_rows_.has_modes(call.collective)) return LaunchMode::kAny;
  return is_capturing() ? LaunchMode::kGraph : LaunchMode::kEager;
}

std::optional<KernelBackend::KernelDecision> KernelBackend::choose_from_tuning(
    KernelCall& call, const SelectionQuery& query, bool library_may) const {
  if (tuning_rows_.empty()) return std::nullopt;
  const int block_limit = call.blocks;
  const auto with_row = [&call, block_limit](const ctran::kernels::SelectionRow& row) {
    auto candidate = call;
    candidate.algorithm = row.algorithm;
    candidate.blocks = ctran::kernels::blocks_within(row.blocks, block_limit);
    return candidate;
  };
  const auto& team = kernels_->team();
  const auto* const row =
      tuning_rows_.find({call.collective, team.size(), query.bytes, element_kind_of(call),
                         query.mode, query.memory, block_limit},
                        [&](const auto& each) {
                          return each.uses_vendor_library ? library_may
                                                          : !each.uses_window_collective &&
                                                                team.can_launch(with_row(each));
                        });
  if (row == nullptr) return std::nullopt;
  if (!row->uses_vendor_library) call = with_row(*row);
  return KernelDecision{.use_kernels = !row->uses_vendor_library, .is_measured = true};
}

std::map<std::string, uint64_t> KernelBackend::memory_usage() const {
  auto bytes = NcclApiBackend::memory_usage();
  if (kernels_) bytes["kernels, later"] = late_workspace_bytes_;
  return bytes;
}

void KernelBackend::on_connected() {
  registered_mode_ = ctran::parse_registered_mode(getOptions().hints);
  if (kernels_) launch_queue()->attach_kernels(kernels_, /*serialized=*/true);
  set_kernel_timeout();
}

void KernelBackend::on_connected_late() {
  if (kernels_) late_workspace_bytes_ = kernels_->team().workspace_bytes();
  on_connected();
}

ctran::RegisteredBufferMode KernelBackend::registered_mode_of(
    const OperationOptions& options) const {
  return options.hints.empty() ? registered_mode_
                               : ctran::parse_registered_mode(options.hints, registered_mode_);
}

void KernelBackend::before_launch(const OperationOptions& options) {
  if (kernels_)
    kernels_->set_zero_copy_send(registered_mode_of(options) == ctran::RegisteredBufferMode::kYes);
}

const ctran::DeviceWindow* KernelBackend::find_window_of(const KernelRequest& request,
                                                         const OperationOptions& options) const {
  if (registered_mode_of(options) == ctran::RegisteredBufferMode::kNo || !kernels_) return nullptr;
  if (request.bytes < ctran::kMinRegisteredBytes && !tuning_rows_.has_registered()) return nullptr;
  const auto& call = request.calls.front();
  if (request.calls.size() != 1 || !kernels_->team().can_launch_on_window(call)) return nullptr;
  const auto shared = ctran::windowed_operand(call, getSize());
  return kernels_->find_window_of(shared.at, shared.bytes);
}

std::optional<ctran::kernels::WindowCollectiveCall> KernelBackend::to_window_collective(
    const KernelRequest& request, const ctran::DeviceWindow& window,
    const OperationOptions& options) {
  using ctran::kernels::TensorMemory;
  auto call = request.calls.front();
  const int block_limit = max_blocks(call.collective, options);
  call.blocks = block_limit;
  const auto* const row =
      tuning_rows_.find({call.collective, getSize(), request.bytes, element_kind_of(call),
                         mode_of(call), TensorMemory::kRegistered, block_limit},
                        [](const auto& each) { return each.memory == TensorMemory::kRegistered; });
  if (row == nullptr ? request.bytes < ctran::kMinRegisteredBytes : !row->uses_window_collective)
    return std::nullopt;
  if (row != nullptr) call.blocks = ctran::kernels::blocks_within(row->blocks, block_limit);
  auto window_call =
      window.make_collective_call(call, ctran::copy_method_of(registered_mode_of(options)));
  if (uses_copy_engines(window_call) && !window.has_separate_copy_queues()) {
    window_call.copy_method = ctran::kernels::CopyMethod::kAutomatic;
    warn_copy_engines_unused();
  }
  return window_call;
}

void KernelBackend::warn_copy_engines_unused() {
  if (std::exchange(has_warned_copy_engines_, true) || getRank() != 0) return;
  base::log(
      base::LogLevel::kWarning,
      "communicator '" + std::string(getCommName()) +
          "': kernels replace the copy engines of hint registered=copies, because ranks share "
          "a device in one process, and so the queue of their copies");
}

WorkPtr KernelBackend::run_window_collective(const nccl::NcclCall& now,
                                             const OperationOptions& options,
                                             const KernelRequest& request,
                                             ctran::kernels::WindowCollectiveCall window_call) {
  return run_kernels(now, options, {request.tensors, request.lists},
                     [&](auto& kernels, gpu::NativeStream stream, uint64_t limit_ns) {
                       window_call.call.timeout_ns = limit_ns;
                       kernels.launch(window_call, stream);
                       enqueue_trailing_copy(request, stream);
                     });
}

void KernelBackend::enqueue_trailing_copy(const KernelRequest& request,
                                          gpu::NativeStream stream) const {
  const auto& [to, from, bytes] = request.trailing_copy;
  if (bytes != 0) launch_queue()->device().runtime().copy_on_device(to, from, bytes, stream);
}

// Of ranks that call the same operation, all come here or none.
bool KernelBackend::ensure_workspace(const nccl::NcclCall& now) {
  if (!workspace_error_.empty() && has_library()) return false;
  const auto until = std::chrono::steady_clock::now() + now.timeout;
  const auto interrupt_check = [&] {
    check_interrupt();
    if (std::chrono::steady_clock::now() >= until)
      throw CommError(
          Errc::kTimeout,
          nccl::format_timeout_error(now, "the kernel workspace was not allocated on all ranks"));
  };
  run_collective_setup(now, [&] {
    const auto before = kernels_->team().workspace_bytes();
    try {
      workspace_error_ = kernels_->allocate_rest(interrupt_check);
    } catch (const CommError& e) {  // peers may have continued
      auto where = now.context(e.context().peer);
      if (where.peer >= 0) where.culprits = {where.peer};
      // What the failed peer itself has reported is more specific.
      const auto peer_failure = kernels_->find_failed_peer(where);
      const auto error = peer_failure ? *peer_failure : CommError(e.code(), e.why(), where);
      launch_queue()->abort_and_wait(error, /*blocks=*/false);
      throw error;
    }
    late_workspace_bytes_ += kernels_->team().workspace_bytes() - before;
  });
  return workspace_error_.empty();
}

bool KernelBackend::ensure_workspace_for(
    const nccl::NcclCall& now, const KernelRequest& request,
    const std::optional<ctran::kernels::WindowCollectiveCall>& window_call) {
  const auto& team = kernels_->team();
  const auto needs_full_workspace = [&team](const auto& call) {
    return team.needs_full_workspace(call);
  };
  const bool needs_workspace = window_call
                                   ? needs_full_workspace(*window_call)
                                   : std::ranges::any_of(request.calls, needs_full_workspace);
  return !needs_workspace || ensure_workspace(now);
}

WorkPtr KernelBackend::try_kernels(const KernelRequest& request, bool async_op,
                                   const OperationOptions& options) {
  const auto now = begin_call(request.op, async_op, options);
  before_collective();
  using ctran::kernels::TensorMemory;
  std::optional<ctran::kernels::WindowCollectiveCall> window_call;
  const bool use_kernels = with_context(
      [&] { return now.context(); },
      [&] {
        const auto* const window = find_window_of(request, options);
        if (window != nullptr) window_call = to_window_collective(request, *window, options);
        if (window_call) return true;
        const SelectionQuery query{
            request.op, request.bytes, mode_of(request.calls.front()), options,
            window == nullptr ? TensorMemory::kPlain : TensorMemory::kRegistered};
        const auto runs_on_kernels = [&](auto& one) { return should_use_kernels(one, query); };
        if (kernels_ && std::ranges::all_of(request.calls, runs_on_kernels)) return true;
        require_library_allowed(request.calls.front().collective, options);
        return false;
      });
  if (!use_kernels) return nullptr;
  if (!ensure_workspace_for(now, request, window_call)) {
    with_context([&] { return now.context(); },
                 [&] { require_library_allowed(request.calls.front().collective, options); });
    return nullptr;
  }
  if (window_call) return run_window_collective(now, options, request, *window_call);
  return run_kernels(now, options, {request.tensors, request.lists},
                     [&](auto& kernels, gpu::NativeStream stream, uint64_t limit_ns) {
                       for (auto& one : request.calls) {
                         one.timeout_ns = limit_ns;
                         kernels.launch(one, stream);
                       }
                       enqueue_trailing_copy(request, stream);
                     });
}

WorkPtr KernelBackend::run_kernels(nccl::NcclCall now, const OperationOptions& options,
                                   const OperandTensors& tensors, const Enqueue& enqueue) {
  const auto limit_ns = timeout_ns_of(now);
  now.aborts_at_timeout = true;
  return run(now, options, tensors, [&](const nccl::NcclLaunch& launch) {
    enqueue(*kernels_, launch.stream, limit_ns);
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
}

std::optional<ctran::KernelCallFactor> KernelBackend::factor_for(OpName op,
                                                                 const ReduceOp& reduction,
                                                                 const at::Tensor& tensor) const {
  const auto context = [&]() -> Context {
    return {
        .op = std::string(opToString(op)), .comm = std::string(getCommName()), .rank = getRank()};
  };
  return with_context(context, [&] { return ctran::kernel_call_factor(reduction, tensor); });
}

WorkPtr KernelBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                 const BroadcastOptions& options) {
  auto call = make_copy_call(Collective::kBroadcast, tensor.nbytes(), tensor, tensor);
  call.root = root;
  if (auto work = try_kernels({OpName::broadcast, {&call, 1}, tensor.nbytes(), {&tensor}}, async_op,
                              options))
    return work;
  return NcclApiBackend::broadcast(tensor, root, async_op, options);
}

WorkPtr KernelBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                  const AllReduceOptions& options) {
  const auto count = static_cast<size_t>(tensor.numel());
  if (const auto factor = factor_for(OpName::all_reduce, op, tensor)) {
    auto call = make_reduce_call(Collective::kAllReduce, op, *factor, count, tensor, tensor);
    if (auto work = try_kernels(
            {OpName::all_reduce, {&call, 1}, tensor.nbytes(), {&tensor, &factor->element}},
            async_op, options))
      return work;
  }
  return NcclApiBackend::all_reduce(tensor, op, async_op, options);
}

WorkPtr KernelBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                              const ReduceOptions& options) {
  const auto count = static_cast<size_t>(tensor.numel());
  // The tensors of ranks other than the root stay unchanged.
  const auto into = getRank() == root ? tensor : at::Tensor();
  if (const auto factor = factor_for(OpName::reduce, op, tensor)) {
    auto call = make_reduce_call(Collective::kReduce, op, *factor, count, tensor, into);
    call.root = root;
    if (auto work =
            try_kernels({OpName::reduce, {&call, 1}, tensor.nbytes(), {&tensor, &factor->element}},
                        async_op, options))
      return work;
  }
  return NcclApiBackend::reduce(tensor, root, op, async_op, options);
}

WorkPtr KernelBackend::all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                         const AllGatherSingleOptions& options) {
  const auto source = nccl::copy_input_if_overlapping(input, output, getRank());
  auto call = make_copy_call(Collective::kAllGather, source.nbytes(), source, output);
  if (auto work =
          try_kernels({OpName::all_gather_single, {&call, 1}, output.nbytes(), {&output, &source}},
                      async_op, options))
    return work;
  return NcclApiBackend::all_gather_single(output, source, async_op, options);
}

// One reduce to each rank, of its slot; the slots of all ranks have one size.
WorkPtr KernelBackend::try_kernels_on_slots(OpName op, const at::Tensor& output,
                                            const Tensors& input, const ReduceOp& reduction,
                                            bool async_op, const OperationOptions& options) {
  const auto factor = factor_for(op, reduction, output);
  if (!factor) return nullptr;
  const auto slots = nccl::copy_if_overlapping(input, output, getRank());
  std::vector<KernelCall> calls;
  size_t most_bytes = 0;
  for (int root = 0; root < getSize(); ++root) {
    const auto& slot = slots[static_cast<size_t>(root)];
    calls.push_back(make_reduce_call(Collective::kReduce, reduction, *factor,
                                     static_cast<size_t>(slot.numel()), slot,
                                     root == getRank() ? output : at::Tensor()));
    calls.back().root = root;
    most_bytes = std::max(most_bytes, slot.nbytes());
  }
  return try_kernels({op, calls, most_bytes, {&output, &factor->element}, {&slots}}, async_op,
                     options);
}

WorkPtr KernelBackend::reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                      bool async_op, const ReduceScatterOptions& options) {
  if (auto work =
          try_kernels_on_slots(OpName::reduce_scatter, output, input, op, async_op, options))
    return work;
  return NcclApiBackend::reduce_scatter(output, input, op, async_op, options);
}

WorkPtr KernelBackend::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                        const ReduceOp& op, bool async_op,
                                        const ReduceScatterOptions& options) {
  if (auto work =
          try_kernels_on_slots(OpName::reduce_scatter_v, output, input, op, async_op, options))
    return work;
  return NcclApiBackend::reduce_scatter_v(output, input, op, async_op, options);
}

WorkPtr KernelBackend::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                             const ReduceOp& op, bool async_op,
                                             const ReduceScatterSingleOptions& options) {
  const auto count = static_cast<size_t>(output.numel());
  // The input is not copied, because it may lie in a window. An output that overlaps it is made in
  // separate memory.
  const bool is_written_directly = nccl::is_in_place_or_disjoint(input, output, getRank());
  const auto result = is_written_directly ? output : at::empty_like(output);
  if (const auto factor = factor_for(OpName::reduce_scatter_single, op, input)) {
    auto call = make_reduce_call(Collective::kReduceScatter, op, *factor, count, input, result);
    KernelRequest::TrailingCopy trailing_copy;
    if (!is_written_directly)
      trailing_copy = {nccl::TensorBytes(output).data, call.output, output.nbytes()};
    if (auto work = try_kernels({OpName::reduce_scatter_single,
                                 {&call, 1},
                                 input.nbytes(),
                                 {&output, &result, &input, &factor->element},
                                 {},
                                 trailing_copy},
                                async_op, options))
      return work;
  }
  return NcclApiBackend::reduce_scatter_single(output, input, op, async_op, options);
}

WorkPtr KernelBackend::all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                         const AllToAllSingleOptions& options) {
  const auto part = input.nbytes() / static_cast<size_t>(getSize());
  const auto source = nccl::overlap(input, output) ? input.clone() : input;
  auto call = make_copy_call(Collective::kAllToAll, part, source, output);
  if (auto work =
          try_kernels({OpName::all_to_all_single, {&call, 1}, input.nbytes(), {&output, &source}},
                      async_op, options))
    return work;
  return NcclApiBackend::all_to_all_single(output, source, async_op, options);
}

WorkPtr KernelBackend::barrier(bool async_op, const BarrierOptions& options) {
  auto call = make_copy_call(Collective::kBarrier, 0, {}, {});
  if (auto work = try_kernels({OpName::barrier, {&call, 1}, 0, {}}, async_op, options)) return work;
  return NcclApiBackend::barrier(async_op, options);
}

WorkPtr KernelBackend::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                     bool async_op, const GatherSingleOptions& options) {
  const bool is_root = getRank() == root;
  const auto source = is_root ? nccl::copy_input_if_overlapping(input, output, root) : input;
  auto call =
      make_copy_call(Collective::kGather, source.nbytes(), source, is_root ? output : at::Tensor());
  call.root = root;
  const auto bytes = source.nbytes() * static_cast<size_t>(getSize());
  const auto& kept = is_root ? output : source;
  if (auto work = try_kernels({OpName::gather_single, {&call, 1}, bytes, {&kept, &source}},
                              async_op, options))
    return work;
  return NcclApiBackend::gather_single(output, source, root, async_op, options);
}

}  // namespace torch::comms
