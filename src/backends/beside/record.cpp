#include "backends/beside/record.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include <torchcomms/types.hpp>

#include "base/op_order.hpp"
#include "base/op_record.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms::beside {
namespace {

using base::OpRecord;
using side::Fingerprint;
using tracing::Phase;

bool is_collective(const OpRecord& op) noexcept { return base::is_of_collective(op.order); }

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
  print.sequence = op.order;
  print.count = count_of(op, size);
  opToString(op_name).copy(print.name, sizeof print.name - 1);
  print.operation = op.kind;
  print.dtype = op_name == OpName::barrier ? side::kNoData : op.dtype;
  print.reduce_op = op.reduce_op;
  print.root = op.root_or_peer;
  if (const auto most = std::max(op.elements_in, op.elements_out); most > 0)
    print.element_bytes = static_cast<uint32_t>(op.bytes / most);
  return print;
}

side::Aside aside_of(const OpRecord& op) {
  const auto op_name = static_cast<OpName>(op.kind);
  side::Aside aside;
  opToString(op_name).copy(aside.name, sizeof aside.name - 1);
  aside.bytes = op.bytes;
  aside.messages = 1;
  aside.peer = op.root_or_peer;
  aside.sends = op_name == OpName::send ? 1 : 0;
  return aside;
}

// What the ring has of a communicator, read once.
struct Calls {
  std::unordered_map<uint64_t, Fingerprint> prints;  // by number
  std::set<uint64_t> open;                           // numbers of collectives
  uint64_t called = 0, finished = 0;
  std::optional<OpRecord> aside;  // the last one
  int64_t aside_ns = 0;           // when it began
  uint64_t asides_called = 0, asides_finished = 0;

  Calls(uint32_t comm, int size) {
    const auto& ring = tracing::process_ring();
    const auto progress = ring.progress(comm);
    called = progress.entered;
    finished = progress.finished;
    for (const auto& [index, event] : ring.read()) {
      const auto& op = event.op;
      if (op.comm != comm) continue;
      const bool begins = event.phase == Phase::kBegin;
      if (!is_collective(op)) {
        ++(begins ? asides_called : asides_finished);
        if (begins) aside = op, aside_ns = event.time_ns;
      } else if (begins) {
        prints[op.order] = fingerprint_of(op, size);
        open.insert(op.order);
      } else {
        open.erase(op.order);
      }
    }
    // Of some only the end is left.
    asides_finished = std::min(asides_called, asides_finished);
    // An operation in a graph counts as ended when it is captured, before those that run.
    if (!open.empty()) finished = *open.begin() - 1;
  }
  Fingerprint print(uint64_t number) const {
    const auto found = prints.find(number);
    return found == prints.end() ? Fingerprint{} : found->second;
  }
};

}  // namespace

uint64_t Record::called() const noexcept {
  const uint64_t comm = comm_.load(std::memory_order_acquire);
  if (comm == kUnknown) return 0;
  return tracing::process_ring().progress(static_cast<uint32_t>(comm)).entered;
}

void Record::begin(const side::Aside& aside) noexcept {
  const std::lock_guard lock(mutex_);
  last_ = aside;
  began_ns_ = tracing::now_ns();
  ++begun_;
}

void Record::end() noexcept {
  const std::lock_guard lock(mutex_);
  ++ended_;
}

uint64_t Record::open() const {
  const uint64_t comm = comm_.load(std::memory_order_acquire);
  if (comm == kUnknown) return 0;
  const Calls calls(static_cast<uint32_t>(comm), size_);
  return calls.called > calls.finished ? calls.finished + 1 : 0;
}

// `is_open`: some aside of the ring is, whose last one began at `began_ns`.
void Record::add_unrecorded(side::Whereabouts& place, bool is_open, int64_t began_ns) const {
  const std::lock_guard lock(mutex_);
  const bool own_is_open = begun_ > ended_;
  if (own_is_open != is_open ? own_is_open : began_ns_ > began_ns) place.aside = last_;
  place.asides_called += begun_;
  place.asides_finished += ended_;
}

side::Answer Record::about(uint64_t number) const {
  side::Answer answer;
  const uint64_t comm = comm_.load(std::memory_order_acquire);
  if (comm == kUnknown) return answer;
  const Calls calls(static_cast<uint32_t>(comm), size_);
  auto& place = answer.place;
  place.called = calls.called;
  place.finished = calls.finished;
  place.print = calls.print(calls.called > calls.finished ? calls.finished + 1 : calls.finished);
  place.asides_called = calls.asides_called;
  place.asides_finished = calls.asides_finished;
  if (calls.aside) place.aside = aside_of(*calls.aside);
  add_unrecorded(place, calls.asides_called > calls.asides_finished, calls.aside_ns);
  for (size_t i = 0; i < answer.prints.size() && i < number; ++i)
    answer.prints.at(i) = calls.print(number - i);
  return answer;
}

}  // namespace torch::comms::beside
