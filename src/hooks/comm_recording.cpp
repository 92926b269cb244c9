#include "hooks/comm_recording.hpp"

#include <array>

#include <pthread.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

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
Entry CommRecording::describe(const base::OpRecord& record, const Op& op) const {
  Entry entry;
  entry.group = group_;
  entry.op = Op::kName;
  entry.sequence = record.matching_sequence;
  entry.op_id = record.op_id;
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
    entry.profiling_name += " " + std::to_string(rank_) +
                            (Op::kName == OpName::send ? "->" : "<-") + std::to_string(op.peer);
  }
  return entry;
}

uint64_t CommRecording::on_begin(const base::OpRecord& record,
                                 const Operation& operation) noexcept {
  uint64_t entry = UINT64_MAX;
  call_observer_noexcept("the flight recorder", logged_, [&] {
    update_membership();
    std::visit(
        [&](const auto& op) {
          entry = recorder_->record(describe(record, op));
          // The calling thread runs the operation, before its work can be watched.
          if constexpr (requires { op.async_op; })
            if (is_on_host_ && !op.async_op) recorder_->started(entry);
        },
        operation);
  });
  return entry;
}

void CommRecording::on_start(uint64_t entry) noexcept { recorder_->started(entry); }

void CommRecording::on_end(uint64_t entry, const base::OpRecord&, bool ok) noexcept {
  if (ok) recorder_->started(entry);
  recorder_->ended(entry, ok);
}

void CommRecording::on_refused(const base::OpRecord& record, const Operation& operation) noexcept {
  call_observer_noexcept("the flight recorder", logged_, [&] {
    update_membership();
    auto entry = std::visit([&](const auto& op) { return describe(record, op); }, operation);
    entry.failed = entry.refused = true;
    recorder_->record(std::move(entry));
  });
}

void CommRecording::on_split(const std::shared_ptr<TorchComm>& child) noexcept {
  call_observer_noexcept("the flight recorder", logged_, [&] { on_split_(child); });
}

}  // namespace torch::comms::fr
