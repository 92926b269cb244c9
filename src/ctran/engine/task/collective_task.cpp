#include "ctran/engine/task/collective_task.hpp"

#include <cstring>
#include <string>

#include "base/os/streaming_copy.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/progress/fast_path.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Buffer;

// Polls between two checks of the transfers that are not next in line, which may have failed.
constexpr unsigned kLooks = 64;

// Calls `body(bytes done, bytes)` for each range that is contiguous in all buffers.
template <class Longest, class Body>
void walk(uint64_t bytes, const Longest& longest, const Body& body) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t run = std::min(bytes - done, longest(done));
    body(done, run);
    done += run;
  }
}

}  // namespace

void CollectiveTask::prepare(const EngineCall& call, std::shared_ptr<const CollectivePlan> plan,
                             std::vector<int> members, uint32_t stream) {
  prepare(call, std::move(plan));
  is_queued = false;
  base_ = 0;  // the plan is not one of the whole group
  members_ = std::move(members);
  stream_ = stream;
}

void CollectiveTask::prepare(const EngineCall& call, std::shared_ptr<const CollectivePlan> plan) {
  plan_ = std::move(plan);
  base_ = group->base;
  step_number_ = 0;
  transferred_ = 0;
  members_.clear();
  stream_ = GroupState::kCollectives;
  buffers_[0].assign(call.input);
  buffers_[1].assign(call.output);
  const auto require = [&](const IoVector& buffer, const char* which, uint64_t bytes) {
    if (bytes == 0 || buffer.bytes() == bytes) return;
    throw CommError(Errc::kInvalidArgument,
                    "the " + std::string(which) + " has " + std::to_string(buffer.bytes()) +
                        " bytes, but the operation needs " + std::to_string(bytes) + " bytes",
                    {.op = std::string(call.name), .rank = plan_->problem().rank});
  };
  require(buffers_[0], "input", plan_->input_bytes());
  require(buffers_[1], "output", plan_->output_bytes());
}

Task::TaskStatus CollectiveTask::begin() {
  fingerprint_ = plan_->fingerprint();
  fingerprint_.sequence = sequence;
  const uint64_t scope =
      members_.empty() ? group->base
                       : hash_bytes(members_.data(), members_.size() * sizeof(int), group->base);
  tag_ = tag_of(plan_->signature(), sequence, scope);
  if (is_queued) {
    group->record_call(plan_, sequence);
  } else {
    NonCollectiveCall call;
    name.copy(call.name, sizeof call.name - 1);
    group->record_p2p_started(call);
  }
  stage_inputs();
  if (const auto* begun = std::exchange(resumed_from_, nullptr)) {
    step_number_ = begun->step();
    transferred_ = begun->transferred();
    const auto scratch = begun->scratch();
    if (!scratch.empty()) std::memcpy(block_.at.get(), scratch.data(), scratch.size());
  }
  posted_ = finished_ = 0;
  if (step_number_ < plan_->steps()) begin_step();
  return advance();
}

// Allocates one block: staged inputs in the wire format, unless the caller's input is used
// directly, and then scratch.
void CollectiveTask::stage_inputs() {
  const auto& planned = plan_->planned_reduction();
  const auto& problem = plan_->problem();
  const uint64_t wire_bytes = plan_->wire_element_bytes();
  const auto inputs = static_cast<uint64_t>(problem.input_count());
  const bool staged = planned.is_wide || planned.has_factor;
  const uint64_t staging = staged ? (inputs * wire_bytes + 63) / 64 * 64 : 0;
  block_ = group->engine->scratch.acquire(staging + plan_->scratch_bytes());
  const Bytes block(block_.at.get(), staging + plan_->scratch_bytes());
  buffers_[2].assign(block.subspan(staging));
  if (!staged) return;
  const auto& reduction = *planned.reduction;
  auto* into = block.data();
  for (const auto& piece : buffers_[0].pieces()) {
    const auto count = piece.size() / plan_->element_bytes();
    if (planned.is_wide && planned.has_factor)
      reduction.widen_scaled(into, piece.data(), count, plan_->factor());
    else if (planned.is_wide)
      reduction.widen(into, piece.data(), count);
    else
      reduction.scale(into, piece.data(), count, plan_->factor());
    into += count * wire_bytes;
  }
  buffers_[0].assign(block.first(inputs * wire_bytes));
  if (!planned.is_wide) return;
  // Results are computed in place of the inputs.
  result_ = std::exchange(buffers_[1], IoVector());
  const auto shift = problem.operation == schedule::Operation::kReduceScatter
                         ? static_cast<uint64_t>(problem.blocks.begin(problem.rank)) * wire_bytes
                         : 0;
  buffers_[1].assign(
      block.subspan(shift, static_cast<uint64_t>(problem.output_count()) * wire_bytes));
}

// Requests point into these lists, which must not be reallocated after this.
void CollectiveTask::gather_io_vectors() {
  into_.clear();
  from_.clear();
  ends_.clear();
  for (const auto& message : step_->receives) {
    for (uint32_t i = 0; !message.has_reduction && i < message.count; ++i) {
      const auto& into = step_->receive_actions[message.first + i].into;
      buffer_of(into.buffer).append(into.begin, into.bytes, into_);
    }
    ends_.push_back(into_.size());
  }
  for (const auto& message : step_->sends) {
    for (uint32_t i = 0; i < message.count; ++i) {
      const auto& sent = step_->sent[message.first + i];
      buffer_of(sent.buffer).append(sent.begin, sent.bytes, from_);
    }
    ends_.push_back(from_.size());
  }
}

void CollectiveTask::begin_step() {
  post();
  if (step_->can_run_local_first) run_local_actions();
}

void CollectiveTask::post() {
  step_ = &plan_->step(step_number_, own_step_, memory_);
  finished_ = 0;
  posted_ = step_->receives.size() + step_->sends.size();
  while (requests_.size() < posted_) requests_.emplace_back();
  while (receive_reducers_.size() < step_->receives.size()) receive_reducers_.emplace_back();
  gather_io_vectors();
  // Receives are posted first, because their peers may be waiting for them.
  post_receives();
  const size_t receives = step_->receives.size();
  for (size_t i = receives, begin = 0; i < posted_; ++i) {
    const size_t end = ends_[i];
    if (!is_transferred(i))
      post_send(i, std::span<const ConstBytes>(from_).subspan(begin, end - begin));
    begin = end;
  }
}

bool CollectiveTask::is_transferred(size_t index) const noexcept {
  return index < FastPath::kMostTransfers && (transferred_ >> index & 1) != 0;
}

void CollectiveTask::post_receives() {
  auto& engine = *group->engine;
  const uint32_t stream = group->base + stream_;
  for (size_t i = 0, begin = 0; i < step_->receives.size(); ++i) {
    const size_t end = ends_[i], count = end - begin;
    const auto first = std::exchange(begin, end);
    if (is_transferred(i)) continue;
    const auto& message = step_->receives[i];
    const int peer = group->ranks[static_cast<size_t>(group_rank(message.peer))];
    auto& link = engine.link_to(peer);
    auto& request = requests_[i];
    request.set_non_temporal(message.is_non_temporal);
    if (message.has_reduction) {
      auto& sink = receive_reducers_[i];
      sink.bind(*this, message);
      link.receive(request, peer, stream, message.bytes, sink, tag_);
    } else if (count == 1) {
      link.receive(request, peer, stream, into_[first], tag_);
    } else {
      link.receive(request, peer, stream, std::span(into_).subspan(first, count), tag_);
    }
  }
}

// `pieces` is a part of from_.
void CollectiveTask::post_send(size_t index, std::span<const ConstBytes> pieces) {
  const auto& message = step_->sends[index - step_->receives.size()];
  const int peer = group->ranks[static_cast<size_t>(group_rank(message.peer))];
  auto& link = group->engine->link_to(peer);
  const uint32_t stream = group->base + stream_;
  if (pieces.size() == 1)
    link.send(requests_[index], peer, stream, pieces.front(), tag_);
  else
    link.send(requests_[index], peer, stream, pieces, tag_);
}

// Returns: false if the request has failed; `failure` is set then.
bool CollectiveTask::check(size_t index) {
  const auto& request = requests_[index];
  const auto receives = step_->receives.size();
  const auto& message = index < receives ? step_->receives[index] : step_->sends[index - receives];
  if (request.is_ok() && (index >= receives || request.bytes() == message.bytes)) return true;
  failure = {group_rank(message.peer), request.is_ok() ? Errc::kMismatch : request.error()};
  const bool is_receive_mismatch = index < receives && failure.code == Errc::kMismatch;
  if (is_receive_mismatch && is_queued && request.tag() != tag_)
    failure.reason = group->describe_stale_message(request.tag());
  if (!failure.reason.empty()) return false;
  if (!is_queued)
    failure.reason = "the members call " + std::string(name) + " with different lists of ranks";
  else if (is_receive_mismatch && request.bytes() != message.bytes)
    failure.reason = "rank " + std::to_string(group->layout.rank) + " expects " +
                     std::to_string(message.bytes) + " bytes of rank " +
                     std::to_string(failure.peer) + ", which sends " +
                     std::to_string(request.bytes());
  else if (index >= receives && failure.code == Errc::kMismatch)
    failure.reason = "rank " + std::to_string(group->layout.rank) + " sends " +
                     std::to_string(message.bytes) + " bytes to rank " +
                     std::to_string(failure.peer) + ", which expects fewer";
  return false;
}

// Returns: whether all transfers of the step are done, or one has failed; `failure` is set then.
bool CollectiveTask::has_finished_transfers() {
  while (finished_ < posted_) {
    if (!is_transferred(finished_)) {
      if (!requests_[finished_].is_done()) break;
      if (!check(finished_)) return true;
    }
    ++finished_;
  }
  if (finished_ == posted_) return true;
  if (++polls_ % kLooks != 0) return false;
  for (size_t i = finished_; i < posted_; ++i)
    if (!is_transferred(i) && requests_[i].is_done() && !check(i)) return true;
  return false;
}

// For a collective without a number in the group: returns true if a member has left before it
// posted its transfer. `failure` names the member then. Numbered collectives are handled by
// fail_for_left_members().
bool CollectiveTask::can_never_complete() {
  if (is_queued || group->left_members.empty()) return false;
  const auto receives = step_->receives.size();
  for (size_t i = finished_; i < posted_; ++i) {
    const int peer =
        group_rank(i < receives ? step_->receives[i].peer : step_->sends[i - receives].peer);
    if (is_transferred(i) || requests_[i].is_done() ||
        !group->can_never_complete(peer, requests_[i]))
      continue;
    if (group->engine->is_draining(*group)) return false;
    failure = {peer, Errc::kPeerFailed};
    return true;
  }
  return false;
}

Task::TaskStatus CollectiveTask::advance() {
  while (step_number_ < plan_->steps()) {
    failure.peer = -1;
    if (!has_finished_transfers())
      return can_never_complete() ? TaskStatus::kFailed : TaskStatus::kInProgress;
    if (failure.peer >= 0) return TaskStatus::kFailed;
    if (!step_->can_run_local_first) run_local_actions();
    transferred_ = 0;
    if (++step_number_ < plan_->steps()) begin_step();
  }
  write_results();
  return TaskStatus::kDone;
}

void CollectiveTask::run_local_actions() const {
  const std::span<const BufferRange> operands(step_->operands);
  for (const auto& local : step_->local_actions) {
    if (local.count == 1)
      copy(local.into, operands[local.first], local.is_non_temporal);
    else
      reduce(local.into, operands.subspan(local.first, local.count));
  }
}

void CollectiveTask::copy(const BufferRange& into, const BufferRange& from,
                          bool is_non_temporal) const {
  const auto& target = buffer_of(into.buffer);
  const auto& source = buffer_of(from.buffer);
  walk(
      into.bytes,
      [&](uint64_t done) {
        return std::min(target.from(into.begin + done).size(),
                        source.from(from.begin + done).size());
      },
      [&](uint64_t done, uint64_t bytes) {
        base::copy_bytes(target.from(into.begin + done).data(),
                         source.from(from.begin + done).data(), bytes, is_non_temporal);
      });
}

void CollectiveTask::reduce(const BufferRange& into, std::span<const BufferRange> operands) const {
  std::array<const void*, Reduction::kMostOperands> pointers;
  const auto& target = buffer_of(into.buffer);
  walk(
      into.bytes,
      [&](uint64_t done) {
        uint64_t longest = target.from(into.begin + done).size();
        for (size_t i = 0; i < operands.size(); ++i) {
          const auto rest = buffer_of(operands[i].buffer).from(operands[i].begin + done);
          pointers[i] = rest.data();
          longest = std::min<uint64_t>(longest, rest.size());
        }
        return longest;
      },
      [&](uint64_t done, uint64_t bytes) {
        plan_->reduce(target.from(into.begin + done).data(), {pointers.data(), operands.size()},
                      bytes);
      });
}

void CollectiveTask::apply_received(const ReceiveAction& arrival, uint64_t offset,
                                    ConstBytes chunk) const {
  const auto& target = buffer_of(arrival.into.buffer);
  const auto& own = buffer_of(arrival.own.buffer);
  walk(
      chunk.size(),
      [&](uint64_t done) {
        const uint64_t at = offset + done;
        const uint64_t longest = target.from(arrival.into.begin + at).size();
        return !arrival.is_reduction
                   ? longest
                   : std::min<uint64_t>(longest, own.from(arrival.own.begin + at).size());
      },
      [&](uint64_t done, uint64_t bytes) {
        const uint64_t at = offset + done;
        auto* into = target.from(arrival.into.begin + at).data();
        if (!arrival.is_reduction) return base::copy_bytes(into, chunk.data() + done, bytes, false);
        const void* mine = own.from(arrival.own.begin + at).data();
        const void* operands[] = {mine, chunk.data() + done};
        if (arrival.first == schedule::LeftOperand::kIncoming) std::swap(operands[0], operands[1]);
        plan_->reduce(into, operands, bytes);
      });
}

void CollectiveTask::ReceiveReducer::consume(uint64_t offset, ConstBytes chunk) noexcept {
  const auto& step = *task_->step_;
  for (uint32_t i = 0; i < message_->count && !chunk.empty(); ++i) {
    const auto& arrival = step.receive_actions[message_->first + i];
    if (offset >= arrival.into.bytes) {
      offset -= arrival.into.bytes;
      continue;
    }
    const auto part = chunk.first(std::min<uint64_t>(chunk.size(), arrival.into.bytes - offset));
    task_->apply_received(arrival, offset, part);
    chunk = chunk.subspan(part.size());
    offset = 0;
  }
}

// Writes the results that the caller sees: rounded and divided.
void CollectiveTask::write_results() const {
  const auto& planned = plan_->planned_reduction();
  if (!planned.is_wide && !planned.has_final_division) return;
  const auto& reduction = *planned.reduction;
  const auto ranks = static_cast<uint32_t>(plan_->problem().size);
  const auto& into = planned.is_wide ? result_ : buffers_[1];
  if (plan_->output_bytes() == 0) return;
  const auto* wide = buffers_[1].pieces().front().data();
  for (const auto& piece : into.pieces()) {
    const auto count = piece.size() / plan_->element_bytes();
    const void* from = planned.is_wide ? wide : piece.data();
    reduction.finish(piece.data(), {&from, 1}, count, ranks);
    wide += count * plan_->wire_element_bytes();
  }
}

void CollectiveTask::close() noexcept {
  if (group && block_.size > 0) group->engine->scratch.release(std::move(block_));
  block_ = {};
  posted_ = finished_ = 0;
}

std::string CollectiveTask::format_pending() const {
  std::string senders, receivers;
  for (size_t i = finished_; step_ != nullptr && i < posted_; ++i) {
    if (is_transferred(i) || requests_[i].is_done()) continue;
    const auto receives = step_->receives.size();
    auto& list = i < receives ? senders : receivers;
    const auto& message = i < receives ? step_->receives[i] : step_->sends[i - receives];
    list += (list.empty() ? "" : ", ") + std::to_string(group_rank(message.peer));
  }
  if (!senders.empty()) return "still missing: data from rank " + senders;
  if (!receivers.empty()) return "data not yet received by rank " + receivers;
  return "the call had not begun";
}

std::string CollectiveTask::format_call() const {
  if (!is_queued) return std::string(name);
  Fingerprint numbered = plan_->fingerprint();
  numbered.sequence = sequence;
  return numbered.format();
}

}  // namespace torch::comms::ctran
