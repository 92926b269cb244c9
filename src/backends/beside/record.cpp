#include "backends/beside/record.hpp"

#include <algorithm>
#include <new>

#include <torchcomms/types.hpp>

#include "base/op_order.hpp"

namespace torch::comms::beside {
namespace {

using base::OpRecord;
using monitor::Fingerprint;

// Elements that all ranks must agree on; -1: each has its own.
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
  Fingerprint print;
  print.sequence = op.matching_sequence;
  print.count = count_of(op, size);
  opToString(op_name).copy(print.name, sizeof print.name - 1);
  print.operation = op.kind;
  print.dtype = op_name == OpName::barrier ? monitor::kNoData : op.dtype;
  print.reduce_op = op.reduce_op;
  print.root = op.root_or_peer;
  if (const auto most = std::max(op.elements_in, op.elements_out); most > 0)
    print.element_bytes = static_cast<uint32_t>(op.bytes / most);
  return print;
}

monitor::NonCollectiveCall aside_of(const OpRecord& op) {
  const auto op_name = static_cast<OpName>(op.kind);
  monitor::NonCollectiveCall aside;
  opToString(op_name).copy(aside.name, sizeof aside.name - 1);
  aside.bytes = op.bytes;
  aside.messages = 1;
  aside.peer = op.root_or_peer;
  aside.sends = op_name == OpName::send ? 1 : 0;
  return aside;
}

}  // namespace

Record::Record(int size) : size_(size), calls_(kKept) {}

void Record::on_begin(const OpRecord& op) noexcept {
  const std::lock_guard lock(mutex_);
  if (!base::is_collective_sequence(op.matching_sequence)) return begin(operations_, aside_of(op));
  make_room(op.matching_sequence);
  slot(op.matching_sequence) = {.op = op, .is_open = true};
  called_ = std::max(called_, op.matching_sequence);
  first_open_ = std::min(first_open_, op.matching_sequence);
  skip_ended();
}

void Record::on_end(const OpRecord& op) noexcept {
  const std::lock_guard lock(mutex_);
  if (!base::is_collective_sequence(op.matching_sequence)) {
    ++operations_.ended;
    return;
  }
  if (is_open(op.matching_sequence)) slot(op.matching_sequence).is_open = false;
  skip_ended();
}

void Record::make_room(uint64_t number) noexcept {
  while (slot(number).is_open && calls_.size() < kMost) {
    std::vector<Call> more;
    try {
      more.resize(2 * calls_.size());
    } catch (const std::bad_alloc&) {
      return;  // the oldest is forgotten
    }
    for (const auto& call : calls_)
      if (call.op.matching_sequence != 0) more[call.op.matching_sequence % more.size()] = call;
    calls_ = std::move(more);
  }
}

void Record::skip_ended() noexcept {
  while (first_open_ <= called_ && !is_open(first_open_)) ++first_open_;
}

void Record::begin(Asides& asides, const monitor::NonCollectiveCall& aside) noexcept {
  asides.last = aside;
  ++asides.begun;
  asides.turn = ++turn_;
}

void Record::begins_on_window(const monitor::NonCollectiveCall& aside) noexcept {
  const std::lock_guard lock(mutex_);
  begin(on_windows_, aside);
}

void Record::ends_on_window() noexcept {
  const std::lock_guard lock(mutex_);
  ++on_windows_.ended;
}

uint64_t Record::first_incomplete() const {
  const std::lock_guard lock(mutex_);
  return first_open_ <= called_ ? first_open_ : 0;
}

Fingerprint Record::print(uint64_t number) const {
  const auto& call = slot(number);
  return number != 0 && call.op.matching_sequence == number ? fingerprint_of(call.op, size_)
                                                            : Fingerprint{};
}

monitor::RankStatus Record::status_of(uint64_t number) const {
  monitor::RankStatus answer;
  const std::lock_guard lock(mutex_);
  auto& place = answer.progress;
  place.called = called_;
  place.finished = first_open_ - 1;
  place.fingerprint = print(std::min(first_open_, called_));
  place.p2p_started = operations_.begun + on_windows_.begun;
  place.p2p_finished = operations_.ended + on_windows_.ended;
  // One that is under way, else the last one.
  const auto weight = [](const Asides& asides) {
    return std::pair(asides.begun > asides.ended, asides.turn);
  };
  place.last_p2p = std::max(operations_, on_windows_, [&](const Asides& a, const Asides& b) {
                     return weight(a) < weight(b);
                   }).last;
  for (size_t i = 0; i < answer.fingerprints.size() && i < number; ++i)
    answer.fingerprints.at(i) = print(number - i);
  return answer;
}

}  // namespace torch::comms::beside
