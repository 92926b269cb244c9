#include "ctran/engine/collective_task.hpp"

#include <cstring>
#include <string>

#include "base/streaming_copy.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/express.hpp"
#include "ctran/engine/membership.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Buffer;

// Between two looks at transfers that are not next in line, for failures.
constexpr unsigned kLooks = 64;

// Calls `body(bytes done, bytes)` for as much as all parts have in one piece.
template <class Longest, class Body>
void walk(uint64_t bytes, const Longest& longest, const Body& body) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t run = std::min(bytes - done, longest(done));
    body(done, run);
    done += run;
  }
}

}  // namespace

void CollectiveTask::prepare(const Call& call, std::shared_ptr<const Plan> plan,
                             std::vector<int> members, uint32_t stream) {
  prepare(call, std::move(plan));
  queued = false;
  base_ = 0;  // the plan is not the group's
  members_ = std::move(members);
  stream_ = stream;
}

void CollectiveTask::prepare(const Call& call, std::shared_ptr<const Plan> plan) {
  plan_ = std::move(plan);
  base_ = group->base;
  step_number_ = 0;
  moved_ = 0;
  members_.clear();
  stream_ = Membership::kCollectives;
  places_[0].assign(call.input);
  places_[1].assign(call.output);
  const auto require = [&](const Pieces& buffer, const char* which, uint64_t bytes) {
    if (bytes == 0 || buffer.bytes() == bytes) return;
    throw CommError(Errc::kInvalidArgument,
                    std::string(which) + " of " + std::to_string(buffer.bytes()) + " bytes, but " +
                        std::to_string(bytes) + " are needed",
                    {.op = std::string(call.name), .rank = plan_->problem().rank});
  };
  require(places_[0], "input", plan_->input_bytes());
  require(places_[1], "output", plan_->output_bytes());
}

Task::Outcome CollectiveTask::begin() {
  print_ = plan_->fingerprint();
  print_.sequence = sequence;
  const uint64_t scope =
      members_.empty() ? group->base
                       : hash_bytes(members_.data(), members_.size() * sizeof(int), group->base);
  tag_ = tag_of(plan_->what(), sequence, scope);
  if (queued) {
    group->remember(plan_, sequence);
  } else {
    NonCollectiveCall aside;
    name.copy(aside.name, sizeof aside.name - 1);
    group->note_begun(aside);
  }
  stage();
  if (const auto* begun = std::exchange(begun_, nullptr)) {
    step_number_ = begun->step();
    moved_ = begun->moved();
    const auto scratch = begun->scratch();
    if (!scratch.empty()) std::memcpy(block_.at.get(), scratch.data(), scratch.size());
  }
  posted_ = finished_ = 0;
  if (step_number_ < plan_->steps()) begin_step();
  return advance();
}

// One block: the inputs as they travel, where they are not the caller's; then scratch.
void CollectiveTask::stage() {
  const auto& addition = plan_->addition();
  const auto& problem = plan_->problem();
  const uint64_t travelling = plan_->travelling_bytes();
  const auto inputs = static_cast<uint64_t>(problem.input_count());
  const bool staged = addition.wide || addition.scales;
  const uint64_t staging = staged ? (inputs * travelling + 63) / 64 * 64 : 0;
  block_ = group->engine->scratch.take(staging + plan_->scratch_bytes());
  const Bytes block(block_.at.get(), staging + plan_->scratch_bytes());
  places_[2].assign(block.subspan(staging));
  if (!staged) return;
  const auto& reduction = *addition.reduction;
  auto* into = block.data();
  for (const auto& piece : places_[0].pieces()) {
    const auto count = piece.size() / plan_->element_bytes();
    if (addition.wide && addition.scales)
      reduction.widen_scaled(into, piece.data(), count, plan_->factor());
    else if (addition.wide)
      reduction.widen(into, piece.data(), count);
    else
      reduction.scale(into, piece.data(), count, plan_->factor());
    into += count * travelling;
  }
  places_[0].assign(block.first(inputs * travelling));
  if (!addition.wide) return;
  // Results are made in place of the inputs.
  result_ = std::exchange(places_[1], Pieces());
  const auto shift = problem.operation == schedule::Operation::kReduceScatter
                         ? static_cast<uint64_t>(problem.blocks.begin(problem.rank)) * travelling
                         : 0;
  places_[1].assign(
      block.subspan(shift, static_cast<uint64_t>(problem.output_count()) * travelling));
}

// Requests point into the lists, which do not move after this.
void CollectiveTask::gather_pieces() {
  into_.clear();
  from_.clear();
  ends_.clear();
  for (const auto& message : step_->receives) {
    for (uint32_t i = 0; !message.reduces && i < message.count; ++i) {
      const auto& into = step_->arrivals[message.first + i].into;
      place(into.buffer).append(into.begin, into.bytes, into_);
    }
    ends_.push_back(into_.size());
  }
  for (const auto& message : step_->sends) {
    for (uint32_t i = 0; i < message.count; ++i) {
      const auto& sent = step_->sent[message.first + i];
      place(sent.buffer).append(sent.begin, sent.bytes, from_);
    }
    ends_.push_back(from_.size());
  }
}

void CollectiveTask::begin_step() {
  post();
  if (step_->locals_first) run_locals();
}

void CollectiveTask::post() {
  step_ = &plan_->step(step_number_, own_step_, memory_);
  finished_ = 0;
  posted_ = step_->receives.size() + step_->sends.size();
  while (requests_.size() < posted_) requests_.emplace_back();
  while (sinks_.size() < step_->receives.size()) sinks_.emplace_back();
  gather_pieces();
  // Receives first: their peers may be waiting for them.
  post_receives();
  const size_t receives = step_->receives.size();
  for (size_t i = receives, begin = 0; i < posted_; ++i) {
    const size_t end = ends_[i];
    if (!is_moved(i)) post_send(i, std::span<const ConstBytes>(from_).subspan(begin, end - begin));
    begin = end;
  }
}

bool CollectiveTask::is_moved(size_t index) const noexcept {
  return index < Express::kMostTransfers && (moved_ >> index & 1) != 0;
}

void CollectiveTask::post_receives() {
  auto& engine = *group->engine;
  const uint32_t stream = group->base + stream_;
  for (size_t i = 0, begin = 0; i < step_->receives.size(); ++i) {
    const size_t end = ends_[i], count = end - begin;
    const auto first = std::exchange(begin, end);
    if (is_moved(i)) continue;
    const auto& message = step_->receives[i];
    const int peer = group->ranks[static_cast<size_t>(member(message.peer))];
    auto& link = engine.reach(peer);
    auto& request = requests_[i];
    request.set_non_temporal(message.passes_caches);
    if (message.reduces) {
      auto& sink = sinks_[i];
      sink.aim(*this, message);
      link.receive(request, peer, stream, message.bytes, sink, tag_);
    } else if (count == 1) {
      link.receive(request, peer, stream, into_[first], tag_);
    } else {
      link.receive(request, peer, stream, std::span(into_).subspan(first, count), tag_);
    }
  }
}

// `pieces` lie in from_.
void CollectiveTask::post_send(size_t index, std::span<const ConstBytes> pieces) {
  const auto& message = step_->sends[index - step_->receives.size()];
  const int peer = group->ranks[static_cast<size_t>(member(message.peer))];
  auto& link = group->engine->reach(peer);
  const uint32_t stream = group->base + stream_;
  if (pieces.size() == 1)
    link.send(requests_[index], peer, stream, pieces.front(), tag_);
  else
    link.send(requests_[index], peer, stream, pieces, tag_);
}

// False: it failed, and `failed` says how.
bool CollectiveTask::check(size_t index) {
  const auto& request = requests_[index];
  const auto receives = step_->receives.size();
  const auto& message = index < receives ? step_->receives[index] : step_->sends[index - receives];
  if (request.is_ok() && (index >= receives || request.bytes() == message.bytes)) return true;
  failed = {member(message.peer), request.is_ok() ? Errc::kMismatch : request.error()};
  const bool comes = index < receives && failed.code == Errc::kMismatch;
  if (comes && queued && request.tag() != tag_) failed.why = group->left_over(request.tag());
  if (!failed.why.empty()) return false;
  if (!queued)
    failed.why = "members call it with other ranks";
  else if (comes && request.bytes() != message.bytes)
    failed.why = "rank " + std::to_string(group->place.rank) + " expects " +
                 std::to_string(message.bytes) + " bytes of rank " + std::to_string(failed.peer) +
                 ", which sends " + std::to_string(request.bytes());
  else if (index >= receives && failed.code == Errc::kMismatch)
    failed.why = "rank " + std::to_string(group->place.rank) + " sends " +
                 std::to_string(message.bytes) + " bytes to rank " + std::to_string(failed.peer) +
                 ", which expects fewer";
  return false;
}

// Whether all transfers of the step are; a failure counts as one, with `failed` set.
bool CollectiveTask::transfers_done() {
  while (finished_ < posted_) {
    if (!is_moved(finished_)) {
      if (!requests_[finished_].is_done()) break;
      if (!check(finished_)) return true;
    }
    ++finished_;
  }
  if (finished_ == posted_) return true;
  if (++looks_ % kLooks != 0) return false;
  for (size_t i = finished_; i < posted_; ++i)
    if (!is_moved(i) && requests_[i].is_done() && !check(i)) return true;
  return false;
}

// Of one that is none of the group's collectives, whose numbers tell: a member has closed the group
// before it came to it. Then `failed` says which.
bool CollectiveTask::is_in_vain() {
  if (queued || group->departed.empty()) return false;
  const auto receives = step_->receives.size();
  for (size_t i = finished_; i < posted_; ++i) {
    const int peer =
        member(i < receives ? step_->receives[i].peer : step_->sends[i - receives].peer);
    if (is_moved(i) || requests_[i].is_done() || !group->is_in_vain(peer, requests_[i])) continue;
    if (group->engine->is_draining(*group)) return false;
    failed = {peer, Errc::kPeerFailed};
    return true;
  }
  return false;
}

Task::Outcome CollectiveTask::advance() {
  while (step_number_ < plan_->steps()) {
    failed.peer = -1;
    if (!transfers_done()) return is_in_vain() ? Outcome::kFailed : Outcome::kMore;
    if (failed.peer >= 0) return Outcome::kFailed;
    if (!step_->locals_first) run_locals();
    moved_ = 0;
    if (++step_number_ < plan_->steps()) begin_step();
  }
  settle();
  return Outcome::kDone;
}

void CollectiveTask::run_locals() const {
  const std::span<const Part> operands(step_->operands);
  for (const auto& local : step_->locals) {
    if (local.count == 1)
      copy(local.into, operands[local.first], local.passes_caches);
    else
      reduce(local.into, operands.subspan(local.first, local.count));
  }
}

void CollectiveTask::copy(const Part& into, const Part& from, bool past_caches) const {
  const auto& target = place(into.buffer);
  const auto& source = place(from.buffer);
  walk(
      into.bytes,
      [&](uint64_t done) {
        return std::min(target.from(into.begin + done).size(),
                        source.from(from.begin + done).size());
      },
      [&](uint64_t done, uint64_t bytes) {
        base::copy_bytes(target.from(into.begin + done).data(),
                         source.from(from.begin + done).data(), bytes, past_caches);
      });
}

void CollectiveTask::reduce(const Part& into, std::span<const Part> operands) const {
  std::array<const void*, Reduction::kMostOperands> pointers;
  const auto& target = place(into.buffer);
  walk(
      into.bytes,
      [&](uint64_t done) {
        uint64_t longest = target.from(into.begin + done).size();
        for (size_t i = 0; i < operands.size(); ++i) {
          const auto rest = place(operands[i].buffer).from(operands[i].begin + done);
          pointers[i] = rest.data();
          longest = std::min<uint64_t>(longest, rest.size());
        }
        return longest;
      },
      [&](uint64_t done, uint64_t bytes) {
        plan_->add(target.from(into.begin + done).data(), {pointers.data(), operands.size()},
                   bytes);
      });
}

void CollectiveTask::absorb(const Arrival& arrival, uint64_t offset, ConstBytes chunk) const {
  const auto& target = place(arrival.into.buffer);
  const auto& own = place(arrival.own.buffer);
  walk(
      chunk.size(),
      [&](uint64_t done) {
        const uint64_t at = offset + done;
        const uint64_t longest = target.from(arrival.into.begin + at).size();
        return !arrival.reduces
                   ? longest
                   : std::min<uint64_t>(longest, own.from(arrival.own.begin + at).size());
      },
      [&](uint64_t done, uint64_t bytes) {
        const uint64_t at = offset + done;
        auto* into = target.from(arrival.into.begin + at).data();
        if (!arrival.reduces) return base::copy_bytes(into, chunk.data() + done, bytes, false);
        const void* mine = own.from(arrival.own.begin + at).data();
        const void* operands[] = {mine, chunk.data() + done};
        if (arrival.first == schedule::LeftOperand::kIncoming) std::swap(operands[0], operands[1]);
        plan_->add(into, operands, bytes);
      });
}

void CollectiveTask::Sink::consume(uint64_t offset, ConstBytes chunk) noexcept {
  const auto& step = *task_->step_;
  for (uint32_t i = 0; i < message_->count && !chunk.empty(); ++i) {
    const auto& arrival = step.arrivals[message_->first + i];
    if (offset >= arrival.into.bytes) {
      offset -= arrival.into.bytes;
      continue;
    }
    const auto part = chunk.first(std::min<uint64_t>(chunk.size(), arrival.into.bytes - offset));
    task_->absorb(arrival, offset, part);
    chunk = chunk.subspan(part.size());
    offset = 0;
  }
}

// What the caller sees: rounded, divided.
void CollectiveTask::settle() const {
  const auto& addition = plan_->addition();
  if (!addition.wide && !addition.divides_last) return;
  const auto& reduction = *addition.reduction;
  const auto ranks = static_cast<uint32_t>(plan_->problem().size);
  const auto& into = addition.wide ? result_ : places_[1];
  if (plan_->output_bytes() == 0) return;
  const auto* wide = places_[1].pieces().front().data();
  for (const auto& piece : into.pieces()) {
    const auto count = piece.size() / plan_->element_bytes();
    const void* from = addition.wide ? wide : piece.data();
    reduction.finish(piece.data(), {&from, 1}, count, ranks);
    wide += count * plan_->travelling_bytes();
  }
}

void CollectiveTask::close() noexcept {
  if (group && block_.size > 0) group->engine->scratch.give(std::move(block_));
  block_ = {};
  posted_ = finished_ = 0;
}

std::string CollectiveTask::waits_for() const {
  std::string senders, takers;
  for (size_t i = finished_; step_ != nullptr && i < posted_; ++i) {
    if (is_moved(i) || requests_[i].is_done()) continue;
    const auto receives = step_->receives.size();
    auto& list = i < receives ? senders : takers;
    const auto& message = i < receives ? step_->receives[i] : step_->sends[i - receives];
    list += (list.empty() ? "" : ", ") + std::to_string(member(message.peer));
  }
  if (!senders.empty()) return "still missing: data from rank " + senders;
  if (!takers.empty()) return "data was not yet taken by rank " + takers;
  return "it had not begun";
}

std::string CollectiveTask::words() const {
  if (!queued) return std::string(name);
  Fingerprint print = plan_->fingerprint();
  print.sequence = sequence;
  return print.format();
}

}  // namespace torch::comms::ctran
