#include "backends/common/collective_log.hpp"

#include <algorithm>
#include <new>

#include <torchcomms/types.hpp>

#include "base/op_order.hpp"

namespace torch::comms::common {
namespace {

using base::OpRecord;
using monitor::Fingerprint;

// Returns: the element count that all ranks must agree on; -1 if counts may differ between ranks.
int64_t count_of(const OpRecord& op, int size) noexcept {
  const auto in = static_cast<int64_t>(op.elements_in), out = static_cast<int64_t>(op.elements_out);
  switch (static_cast<OpName>(op.kind)) {
    case OpName::broadcast:
    case OpName::all_reduce:
    case OpName::reduce:
    case OpName::reduce_scatter:
    case OpName::reduce_scatter_v:
    case OpName::reduce_scatter_single:
    case OpName::all_to_all_single:
      return in;
    case OpName::all_gather:
    case OpName::all_gather_v:
    case OpName::all_gather_single:
      return out;
    case OpName::gather:
    case OpName::gather_single:
      return in * size;  // only the root has an output
    case OpName::scatter:
      return out * size;
    case OpName::barrier:
      return 0;
    default:
      return -1;
  }
}

Fingerprint fingerprint_of(const OpRecord& op, int size) {
  const auto op_name = static_cast<OpName>(op.kind);
  Fingerprint fingerprint;
  fingerprint.sequence = op.matching_sequence;
  fingerprint.count = count_of(op, size);
  opToString(op_name).copy(fingerprint.name, sizeof fingerprint.name - 1);
  fingerprint.operation = op.kind;
  fingerprint.dtype = op_name == OpName::barrier ? monitor::kNoData : op.dtype;
  fingerprint.reduce_op = op.reduce_op;
  fingerprint.root = op.root_or_peer;
  if (const auto most = std::max(op.elements_in, op.elements_out); most > 0)
    fingerprint.element_bytes = static_cast<uint32_t>(op.bytes / most);
  return fingerprint;
}

monitor::NonCollectiveCall non_collective_call_of(const OpRecord& op) {
  const auto op_name = static_cast<OpName>(op.kind);
  monitor::NonCollectiveCall call;
  opToString(op_name).copy(call.name, sizeof call.name - 1);
  call.bytes = op.bytes;
  call.messages = 1;
  call.peer = op.root_or_peer;
  call.sends = op_name == OpName::send ? 1 : 0;
  return call;
}

}  // namespace

CollectiveLog::CollectiveLog(int size) : size_(size), calls_(kMinEntries) {}

uint64_t CollectiveLog::on_begin(const OpRecord& op, const Operation&) noexcept {
  const std::lock_guard lock(mutex_);
  if (!base::is_collective_sequence(op.matching_sequence)) {
    count_started(p2p_calls_, non_collective_call_of(op));
    return 0;
  }
  grow_if_full(op.matching_sequence);
  slot(op.matching_sequence) = {.op = op, .is_open = true};
  last_called_ = std::max(last_called_, op.matching_sequence);
  first_open_ = std::min(first_open_, op.matching_sequence);
  advance_first_open();
  return 0;
}

void CollectiveLog::on_end(uint64_t, const OpRecord& op, bool) noexcept {
  const std::lock_guard lock(mutex_);
  if (!base::is_collective_sequence(op.matching_sequence)) {
    ++p2p_calls_.finished;
    return;
  }
  if (is_open(op.matching_sequence)) slot(op.matching_sequence).is_open = false;
  advance_first_open();
}

void CollectiveLog::grow_if_full(uint64_t number) noexcept {
  while (slot(number).is_open && calls_.size() < kMaxEntries) {
    std::vector<LoggedCollective> more;
    try {
      more.resize(2 * calls_.size());
    } catch (const std::bad_alloc&) {
      return;  // the new entry overwrites an open one
    }
    for (const auto& call : calls_)
      if (call.op.matching_sequence != 0) more[call.op.matching_sequence % more.size()] = call;
    calls_ = std::move(more);
  }
}

void CollectiveLog::advance_first_open() noexcept {
  while (first_open_ <= last_called_ && !is_open(first_open_)) ++first_open_;
}

void CollectiveLog::count_started(NonCollectiveCounters& counters,
                                  const monitor::NonCollectiveCall& call) noexcept {
  counters.last_call = call;
  ++counters.started;
  counters.last_order = ++order_;
}

void CollectiveLog::on_window_begin(const monitor::NonCollectiveCall& call) noexcept {
  const std::lock_guard lock(mutex_);
  count_started(window_calls_, call);
}

void CollectiveLog::on_window_end() noexcept {
  const std::lock_guard lock(mutex_);
  ++window_calls_.finished;
}

uint64_t CollectiveLog::first_incomplete() const {
  const std::lock_guard lock(mutex_);
  return first_open_ <= last_called_ ? first_open_ : 0;
}

Fingerprint CollectiveLog::fingerprint_at(uint64_t number) const {
  const auto& call = slot(number);
  return number != 0 && call.op.matching_sequence == number ? fingerprint_of(call.op, size_)
                                                            : Fingerprint{};
}

monitor::RankStatus CollectiveLog::status_of(uint64_t number) const {
  monitor::RankStatus status;
  const std::lock_guard lock(mutex_);
  auto& progress = status.progress;
  progress.called = last_called_;
  progress.finished = first_open_ - 1;
  progress.fingerprint = fingerprint_at(std::min(first_open_, last_called_));
  progress.p2p_started = p2p_calls_.started + window_calls_.started;
  progress.p2p_finished = p2p_calls_.finished + window_calls_.finished;
  // Prefers the kind of call that is in flight, else the kind that was called last.
  const auto weight = [](const NonCollectiveCounters& counters) {
    return std::pair(counters.started > counters.finished, counters.last_order);
  };
  progress.last_p2p = std::max(p2p_calls_, window_calls_,
                               [&](const NonCollectiveCounters& a, const NonCollectiveCounters& b) {
                                 return weight(a) < weight(b);
                               })
                          .last_call;
  for (size_t i = 0; i < status.fingerprints.size() && i < number; ++i)
    status.fingerprints.at(i) = fingerprint_at(number - i);
  return status;
}

}  // namespace torch::comms::common
