#include "hooks/comm_recording.hpp"

#include <array>

#include <pthread.h>

#include <algorithm>
#include <string>

#include "hooks/observer_call.hpp"
#include "hooks/operation_tensors.hpp"
#include "tracing/event_ring.hpp"

namespace torch::comms::fr {
namespace {

// Returns: the name that PyTorch's trace analyzer uses for an operation. The analyzer rejects
// unknown names.
std::string_view reader_name(OpName op) {
  switch (op) {
    case OpName::batch_op_issue:
      return "coalesced";
    case OpName::gather_single:
      return "gather";
    default:
      return opToString(op);
  }
}

std::string this_thread_name() {
  std::array<char, 16> name{};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

void keep(const at::Tensor& tensor, std::vector<std::vector<int64_t>>& sizes,
          std::vector<c10::ScalarType>& dtypes) {
  sizes.push_back(tensor.sizes().vec());
  dtypes.push_back(tensor.scalar_type());
}

}  // namespace

CommRecording::CommRecording(std::shared_ptr<FlightRecorder> recorder,
                             const std::shared_ptr<TorchComm>& comm,
                             std::function<void(const std::shared_ptr<TorchComm>&)> on_split)
    : recorder_(std::move(recorder)),
      comm_(comm),
      on_split_(std::move(on_split)),
      group_(recorder_->add_group(std::string(comm->getCommName()), comm->getBackend())),
      prefix_(comm->getBackend() + ":"),
      timeout_ms_(comm->getOptions().timeout.count()),
      counts_splits_(comm->getBackendImpl()->capabilities().counts_splits),
      is_on_host_(comm->getDevice().is_cpu()) {
  update_membership();
}

void CommRecording::update_membership() {
  const auto comm = comm_.lock();
  // A communicator without members (before reconfigure()) has no rank.
  if (!comm || !comm->isConnected()) return;
  if (const auto membership = comm->getMembership(); membership && membership != membership_) {
    group_ = recorder_->add_group(
        std::string(comm->getCommName()) + "#" + std::to_string(*membership), comm->getBackend());
    membership_ = membership;
    order_ = {};
    rank_ = size_ = -1;
  }
  const int rank = comm->getRank();
  const int size = comm->getSize();
  if (rank == rank_ && size == size_) return;
  rank_ = rank;
  size_ = size;
  recorder_->set_members(*group_, comm->getRanks(), rank);
}

template <class Op>
Entry CommRecording::describe(size_t op_id, const Op& op) {
  Entry entry;
  entry.group = group_;
  entry.op = Op::kName;
  entry.op_id = op_id;
  entry.thread = tracing::kernel_thread_id();
  entry.thread_name = this_thread_name();
  entry.profiling_name = prefix_ + std::string(reader_name(Op::kName));
  entry.timeout_ms = timeout_ms_;
  const OperationTensors tensors = operation_tensors(op);
  for (const auto* tensor : tensors.inputs) keep(*tensor, entry.input_sizes, entry.input_dtypes);
  for (const auto* tensor : tensors.outputs) keep(*tensor, entry.output_sizes, entry.output_dtypes);
  if constexpr (requires { op.options.timeout; })
    if (op.options.timeout != kNoTimeout) entry.timeout_ms = op.options.timeout.count();
  if constexpr (requires { op.op; }) entry.reduce_op = op.op.type();
  if constexpr (requires { op.root; }) entry.root = op.root;
  if constexpr (requires { op.peer; }) {
    entry.peer = op.peer;
    const bool sends = Op::kName == OpName::send;
    entry.profiling_name +=
        " " + std::to_string(rank_) + (sends ? "->" : "<-") + std::to_string(op.peer);
    entry.sequence = sends ? order_.next_message(rank_, op.peer, size_)
                           : order_.next_message(op.peer, rank_, size_);
  }
  if constexpr (Op::kName == OpName::batch_op_issue) entry.sequence = order_.next_batch();
  if constexpr (Op::kName == OpName::split)
    if (!counts_splits_) entry.sequence = order_.next_split();
  return entry;
}

void CommRecording::begin(size_t op_id, Entry entry, bool runs_now) {
  const uint64_t sequence = entry.sequence;
  open_.push_back({op_id, recorder_->record(std::move(entry)), sequence});
  if (runs_now) recorder_->started(open_.back().entry);
}

std::optional<CommRecording::OpenOperation> CommRecording::remove_open(size_t op_id) {
  const auto at =
      std::ranges::find_if(open_, [&](const OpenOperation& open) { return open.op_id == op_id; });
  if (at == open_.end()) return std::nullopt;
  const OpenOperation taken = *at;
  open_.erase(at);
  return taken;
}

void CommRecording::pre(size_t op_id, const PreHookArgs& args) noexcept {
  call_observer_noexcept("the flight recorder", logged_, [&] {
    update_membership();
    std::visit(
        [&](const auto& op) {
          using Op = std::remove_cvref_t<decltype(op)>;
          bool runs_now =
              false;  // the calling thread runs the operation, before its work can be watched
          if constexpr (requires { op.async_op; }) runs_now = is_on_host_ && !op.async_op;
          if constexpr (Op::kName != OpName::finalize) begin(op_id, describe(op_id, op), runs_now);
        },
        args);
  });
}

void CommRecording::end(size_t op_id, const PostHookArgs& args) {
  const auto open = remove_open(op_id);
  if (!open) return;
  const uint64_t entry = open->entry;

  const auto watch = [&](const c10::weak_intrusive_ptr<TorchWork>& weak) {
    const auto work = weak.lock();
    if (!work) return recorder_->ended(entry, true);
    work->registerWorkStartHook([recorder = recorder_, entry] { recorder->started(entry); });
    // The hook runs during the status change, while the work is alive.
    work->registerWorkEndHook([recorder = recorder_, entry, ended = work.get()] {
      recorder->ended(entry, ended->status() == WorkStatus::COMPLETED);
    });
  };
  if (const auto* collective = std::get_if<CollectivePostHookArgs>(&args)) {
    watch(collective->work);
  } else if (const auto* batch = std::get_if<BatchOpIssuePostHookArgs>(&args)) {
    watch(batch->work);
  } else {
    recorder_->started(entry);
    recorder_->ended(entry, true);
  }
  if (const auto* split = std::get_if<SplitPostHookArgs>(&args))
    if (const auto child = split->new_comm.lock()) on_split_(child);
}

void CommRecording::post(size_t op_id, const PostHookArgs& args) noexcept {
  call_observer_noexcept("the flight recorder", logged_, [&] { end(op_id, args); });
}

void CommRecording::unposted(size_t op_id, Unposted why) noexcept {
  call_observer_noexcept("the flight recorder", logged_, [&] {
    const auto open = remove_open(op_id);
    if (!open) return;
    switch (why) {
      case Unposted::kRefused:
        recorder_->set_refused(open->entry);
        return order_.cancel(open->sequence);
      case Unposted::kRaised:
        return recorder_->set_failed(open->entry);
      case Unposted::kLeft:
        return recorder_->ended(open->entry, true);
    }
  });
}

}  // namespace torch::comms::fr
