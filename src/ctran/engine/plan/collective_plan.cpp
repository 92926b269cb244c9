#include "ctran/engine/plan/collective_plan.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "base/os/cache_info.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::Operation;

constexpr int64_t kMostKeptSteps = 8;
constexpr int64_t kMostKeptRanks = 16;

bool adds(Operation operation) noexcept {
  return operation == Operation::kReduce || operation == Operation::kAllReduce ||
         operation == Operation::kReduceScatter;
}

// Whether all operands of each sum are added on one rank, in one step.
bool adds_at_once(const schedule::Algorithm& algorithm) noexcept {
  return adds(algorithm.operation) && (algorithm.name == "one_shot" ||
                                       algorithm.name == "two_shot" || algorithm.name == "direct");
}

// Returns equal blocks whose offsets live in `offsets`.
schedule::Blocks copy_blocks(const schedule::Blocks& blocks, std::vector<int64_t>& offsets) {
  const auto parts = blocks.parts();
  const auto even = parts == 0 ? schedule::Blocks() : schedule::Blocks::even(blocks.total(), parts);
  bool is_even = true;
  for (int i = 0; i < parts && is_even; ++i) is_even = even.begin(i) == blocks.begin(i);
  // Blocks that are even only by chance are not blocks with equal() set.
  if (is_even && even.equal() == blocks.equal()) return even;
  offsets.resize(static_cast<size_t>(parts) + 1);
  for (int i = 0; i <= parts; ++i) offsets[static_cast<size_t>(i)] = blocks.begin(i);
  return schedule::Blocks::from_offsets(offsets);
}

// Returns the problem whose data moves; for a consistency check, a barrier.
schedule::Problem problem_of(const EngineCall& call, const CollectivePlan::GroupLayout& layout) {
  if (call.is_consistency_check)
    return vector_problem(Operation::kBarrier, layout.rank, layout.size, 0, 0);
  switch (call.operation) {
    case Operation::kGather:
    case Operation::kScatter:
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      return block_problem(call.operation, layout.rank, call.blocks, call.root);
    case Operation::kAllToAll:
      return all_to_all_problem(layout.rank, call.blocks, call.arriving);
    default:
      return vector_problem(call.operation, layout.rank, layout.size, call.blocks.total(),
                            call.root);
  }
}

PlannedMessage& message_to(int peer, std::vector<PlannedMessage>& messages, size_t& hint) {
  for (size_t looked = 0; looked < messages.size(); ++looked, ++hint) {
    if (hint >= messages.size()) hint = 0;
    if (messages[hint].peer == peer) return messages[hint];
  }
  messages.push_back({.peer = peer});
  hint = messages.size() - 1;
  return messages.back();
}

bool is_send(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kSignal;
}

// Compares bits: zeros of different signs differ, and a NaN equals itself.
bool same_bits(const PremulFactor& a, const PremulFactor& b) noexcept {
  const auto bits = [](double number) { return std::bit_cast<uint64_t>(number); };
  return bits(a.real) == bits(b.real) && bits(a.imaginary) == bits(b.imaginary) &&
         a.integer == b.integer;
}

bool disjoint(const BufferRange& a, const BufferRange& b) noexcept {
  return a.buffer != b.buffer || a.begin >= b.begin + b.bytes || b.begin >= a.begin + a.bytes;
}

void lay_out(std::vector<PlannedMessage>& messages) {
  uint32_t next = 0;
  for (auto& message : messages) {
    message.first = next;
    next += std::exchange(message.count, 0);
  }
}

}  // namespace

void StepPlan::clear() noexcept {
  sends.clear();
  receives.clear();
  sent.clear();
  operands.clear();
  receive_actions.clear();
  local_actions.clear();
  can_run_local_first = false;
}

CollectivePlan::CollectivePlan(const EngineCall& call, const GroupLayout& layout,
                               const AlgorithmChooser& choose_by)
    : key_(call) {
  const auto wrong = [&](const std::string& why) {
    return CommError(Errc::kInvalidArgument, why,
                     {.op = std::string(call.name), .rank = layout.rank});
  };
  if (call.blocks.parts() != layout.size)
    throw wrong("the call has " + std::to_string(call.blocks.parts()) +
                " blocks, but the group has " + std::to_string(layout.size) + " ranks");
  if (call.element_bytes == 0) throw wrong("the element size is 0 bytes");
  key_.input = {};
  key_.output = {};
  key_.blocks = copy_blocks(call.blocks, offsets_);
  key_.arriving = copy_blocks(call.arriving, arriving_offsets_);
  if (adds(call.operation) && !call.is_consistency_check) {
    const auto dtype = static_cast<Dtype>(call.dtype);
    reduction_.reduction.emplace(dtype, call.op);
    if (size_of(dtype) != call.element_bytes)
      throw wrong("the element size is " + std::to_string(call.element_bytes) +
                  " bytes, but an element of " + std::string(name_of(dtype)) + " has " +
                  std::to_string(size_of(dtype)) + " bytes");
  }
  try {
    problem_ = problem_of(key_, layout);
  } catch (const std::invalid_argument& error) {
    throw wrong(error.what());
  }
  constexpr int64_t kMostBytes = int64_t{1} << 56;
  if (problem_.count() > kMostBytes / call.element_bytes ||
      problem_.receive_blocks.total() > kMostBytes / call.element_bytes)
    throw CommError(Errc::kTooLarge, "the operation moves more than 2^56 bytes",
                    {.op = std::string(call.name)});
  fingerprint_ = fingerprint_of(key_, 0);
  signature_ = fingerprint_.hash_without_sequence();
  choose_algorithm(call, layout, choose_by);
  plan_reduction();
  steps_ = algorithm_->steps(problem_);
  input_bytes_ = static_cast<uint64_t>(problem_.input_count()) * key_.element_bytes;
  output_bytes_ = static_cast<uint64_t>(problem_.output_count()) * key_.element_bytes;
  scratch_bytes_ = static_cast<uint64_t>(algorithm_->scratch(problem_)) * wire_element_bytes_;
  if (steps_ <= kMostKeptSteps && layout.size <= kMostKeptRanks) {
    schedule::Step step;
    cached_steps_.resize(static_cast<size_t>(steps_));
    for (int64_t t = 0; t < steps_; ++t) {
      algorithm_->step(problem_, t, step);
      write_step(step, cached_steps_[static_cast<size_t>(t)]);
    }
    mark_non_temporal();
  }
}

// Results that the plan does not read again are written past the caches, if the caches would not
// hold them until the caller reads them.
void CollectivePlan::mark_non_temporal() {
  // write_results() reads all of them again
  if (reduction_.is_wide || reduction_.has_final_division ||
      !base::exceeds_own_cache_share(input_bytes_ + output_bytes_))
    return;
  for (size_t t = 0; t < cached_steps_.size(); ++t) {
    auto& step = cached_steps_[t];
    for (auto& message : step.receives) {
      const auto arrivals = std::span(step.receive_actions).subspan(message.first, message.count);
      message.is_non_temporal = !message.has_reduction &&
                                std::ranges::all_of(arrivals, [&](const ReceiveAction& arrival) {
                                  return is_result(arrival.into, t);
                                });
    }
    for (auto& local : step.local_actions)
      local.is_non_temporal = local.count == 1 && is_result(local.into, t);
  }
}

// Returns whether the range that a step writes is a result, and is not read in this step or later.
bool CollectivePlan::is_result(const BufferRange& written, size_t step) const noexcept {
  const auto disjoint_from = [&](const BufferRange& read) { return disjoint(written, read); };
  return written.buffer == schedule::Buffer::kOutput &&
         std::all_of(cached_steps_.begin() + static_cast<ptrdiff_t>(step), cached_steps_.end(),
                     [&](const StepPlan& later) {
                       return std::ranges::all_of(later.sent, disjoint_from) &&
                              std::ranges::all_of(later.operands, disjoint_from) &&
                              std::ranges::all_of(
                                  later.receive_actions, [&](const ReceiveAction& arrival) {
                                    return !arrival.is_reduction || disjoint_from(arrival.own);
                                  });
                     });
}

void CollectivePlan::choose_algorithm(const EngineCall& call, const GroupLayout& layout,
                                      const AlgorithmChooser& choose_by) {
  ProblemInfo info{.problem = problem_,
                   .element_bytes = key_.element_bytes,
                   .is_reduction = reduction_.reduction.has_value(),
                   .one_host = layout.is_one_host,
                   .local_size = layout.local_size};
  if (info.is_reduction)
    info.has_wide_accumulator =
        reduction_.reduction->accumulator() != reduction_.reduction->dtype();
  const auto* requested = call.is_consistency_check ? nullptr : call.algorithm;
  const int64_t chunk = call.is_consistency_check ? -1 : call.chunk;
  AlgorithmChoice choice;
  if (requested == nullptr || chunk < 0) choice = choose_by(info);
  if (requested != nullptr) {
    if (requested != choice.algorithm) choice.chunk = 0;
    choice.algorithm = requested;
  }
  if (chunk >= 0) choice.chunk = chunk;
  problem_.options.chunk = choice.chunk;
  problem_.options.local_size = layout.local_size;
  TC_CHECK(choice.algorithm != nullptr);
  if (const auto missing = choice.algorithm->unsupported_reason(problem_); !missing.empty())
    throw CommError(
        Errc::kUnsupported,
        "algorithm '" + std::string(choice.algorithm->name) + "': " + std::string(missing),
        {.op = std::string(call.name), .rank = layout.rank});
  algorithm_ = choice.algorithm;
}

void CollectivePlan::plan_reduction() {
  wire_element_bytes_ = key_.element_bytes;
  if (!reduction_.reduction) return;
  const auto& reduction = *reduction_.reduction;
  const auto size = static_cast<size_t>(problem_.size);
  reduction_.has_factor = key_.op == ReduceOpCode::kPremulSum;
  if (size == 1) return;
  reduction_.is_single_pass = adds_at_once(*algorithm_) && size <= Reduction::kMostOperands;
  const bool rounds = reduction.accumulator() != reduction.dtype();
  reduction_.is_wide = rounds && (!reduction_.is_single_pass || reduction_.has_factor);
  if (reduction_.is_wide) {
    reduction_.is_single_pass = false;
    wire_element_bytes_ = static_cast<uint32_t>(size_of(reduction.accumulator()));
  }
  reduction_.has_final_division =
      key_.op == ReduceOpCode::kAverage && !reduction_.is_single_pass && !reduction_.is_wide;
}

bool CollectivePlan::matches(const EngineCall& call) const noexcept {
  return call.operation == key_.operation && call.dtype == key_.dtype && call.op == key_.op &&
         call.root == key_.root && call.element_bytes == key_.element_bytes &&
         call.algorithm == key_.algorithm && call.chunk == key_.chunk &&
         call.is_consistency_check == key_.is_consistency_check &&
         (call.name.data() == key_.name.data() || call.name == key_.name) &&
         call.blocks == key_.blocks && call.arriving == key_.arriving &&
         (call.op != ReduceOpCode::kPremulSum || same_bits(call.factor, key_.factor));
}

BufferRange CollectivePlan::buffer_range(const schedule::Range& range) const noexcept {
  return {range.buffer, static_cast<uint64_t>(range.begin) * wire_element_bytes_,
          static_cast<uint64_t>(range.count) * wire_element_bytes_};
}

const StepPlan& CollectivePlan::step(int64_t t, StepPlan& own, schedule::Step& memory) const {
  if (!cached_steps_.empty()) return cached_steps_[static_cast<size_t>(t)];
  algorithm_->step(problem_, t, memory);
  write_step(memory, own);
  return own;
}

void CollectivePlan::reduce(void* into, std::span<const void* const> operands,
                            uint64_t bytes) const noexcept {
  const auto& reduction = *reduction_.reduction;
  const uint64_t count = bytes / wire_element_bytes_;
  if (reduction_.is_single_pass)
    reduction.combine_all(into, operands, count, static_cast<uint32_t>(problem_.size));
  else if (reduction_.is_wide)
    reduction.combine_wide(into, operands[0], operands[1], count);
  else
    reduction.combine(into, operands[0], operands[1], count);
}

void CollectivePlan::write_step(const schedule::Step& step, StepPlan& out) const {
  out.clear();
  write_transfers(step.transfers(), out);
  write_locals(step.local(), out);
  if (reduction_.is_single_pass && problem_.size == 2) reduce_on_arrival(out);
  out.can_run_local_first = are_local_actions_independent(out);
}

// Returns whether all local actions copy input to parts of the output that no other part of the
// step writes or reads. In place, they are copies onto themselves.
bool CollectivePlan::are_local_actions_independent(const StepPlan& out) noexcept {
  using schedule::Buffer;
  return std::all_of(
      out.local_actions.begin(), out.local_actions.end(), [&](const LocalAction& local) {
        return local.count == 1 && local.into.buffer == Buffer::kOutput &&
               out.operands[local.first].buffer == Buffer::kInput &&
               std::all_of(out.receive_actions.begin(), out.receive_actions.end(),
                           [&](const ReceiveAction& arrival) {
                             return disjoint(arrival.into, local.into) &&
                                    (!arrival.is_reduction || disjoint(arrival.own, local.into));
                           }) &&
               std::all_of(out.sent.begin(), out.sent.end(),
                           [&](const BufferRange& sent) { return disjoint(sent, local.into); });
      });
}

// Creates the messages first, in the order of their peers' first actions, and then fills them.
void CollectivePlan::write_transfers(std::span<const Action> transfers, StepPlan& out) const {
  size_t to = 0, from = 0;
  for (const auto& action : transfers)
    ++(is_send(action) ? message_to(action.peer, out.sends, to)
                       : message_to(action.peer, out.receives, from))
          .count;
  lay_out(out.sends);
  lay_out(out.receives);
  out.sent.resize(transfers.size());
  out.receive_actions.resize(transfers.size());
  for (const auto& action : transfers) {
    if (is_send(action)) {
      auto& message = message_to(action.peer, out.sends, to);
      if (action.kind == ActionKind::kSignal) continue;
      const BufferRange sent = buffer_range(action.from);
      out.sent[message.first + message.count++] = sent;
      message.bytes += sent.bytes;
      continue;
    }
    auto& message = message_to(action.peer, out.receives, from);
    if (action.kind == ActionKind::kWait) continue;
    const bool reduces = action.kind == ActionKind::kReceiveReduce;
    const ReceiveAction arrival{buffer_range(action.into), reduces, action.left_operand,
                                buffer_range(action.from)};
    out.receive_actions[message.first + message.count++] = arrival;
    message.bytes += arrival.into.bytes;
    message.has_reduction |= reduces;
  }
}

// Merges a chain of sums, each of the previous sum and one more operand, into one sum of all
// operands.
void CollectivePlan::write_locals(std::span<const Action> locals, StepPlan& out) const {
  for (size_t i = 0; i < locals.size(); ++i) {
    const auto& action = locals[i];
    LocalAction local{buffer_range(action.into), static_cast<uint32_t>(out.operands.size()), 0};
    out.operands.push_back(buffer_range(action.from));
    if (action.kind == ActionKind::kReduce) out.operands.push_back(buffer_range(action.other));
    if (action.kind == ActionKind::kReduce && reduction_.is_single_pass) {
      while (i + 1 < locals.size() && locals[i + 1].kind == ActionKind::kReduce &&
             locals[i + 1].from == locals[i].into) {
        out.operands.push_back(buffer_range(locals[++i].other));
        local.into = buffer_range(locals[i].into);
      }
      TC_CHECK(out.operands.size() - local.first == static_cast<size_t>(problem_.size));
    }
    local.count = static_cast<uint32_t>(out.operands.size()) - local.first;
    out.local_actions.push_back(local);
  }
}

// With two ranks, the sum of the own operand and the incoming data needs no scratch: the receive
// reduces. This is not done if the result would overwrite data that is still being sent.
void CollectivePlan::reduce_on_arrival(StepPlan& out) const {
  if (out.local_actions.size() != 1 || out.local_actions[0].count != 2) return;
  const auto& local = out.local_actions[0];
  const bool incoming_first = out.operands[local.first].buffer == schedule::Buffer::kScratch;
  const BufferRange arriving = out.operands[local.first + (incoming_first ? 0 : 1)];
  const BufferRange own = out.operands[local.first + (incoming_first ? 1 : 0)];
  // The buffers overlap only in place.
  const uint64_t shift =
      problem_.operation == Operation::kReduceScatter
          ? static_cast<uint64_t>(problem_.blocks.begin(problem_.rank)) * wire_element_bytes_
          : 0;
  const auto at = [&](const BufferRange& p) {
    return p.begin + (p.buffer == schedule::Buffer::kOutput ? shift : 0);
  };
  const auto in_scratch = [](const BufferRange& p) {
    return p.buffer == schedule::Buffer::kScratch;
  };
  const auto overlaps = [&](const BufferRange& sent) {
    return in_scratch(sent) == in_scratch(local.into) &&
           at(sent) < at(local.into) + local.into.bytes && at(local.into) < at(sent) + sent.bytes;
  };
  for (const auto& message : out.sends)
    for (uint32_t i = 0; i < message.count; ++i)
      if (overlaps(out.sent[message.first + i])) return;
  for (auto& message : out.receives)
    for (uint32_t i = 0; i < message.count; ++i) {
      auto& arrival = out.receive_actions[message.first + i];
      if (arrival.into.buffer != schedule::Buffer::kScratch ||
          arrival.into.begin != arriving.begin || arrival.into.bytes != arriving.bytes)
        continue;
      arrival = {local.into, true,
                 incoming_first ? schedule::LeftOperand::kIncoming : schedule::LeftOperand::kOwn,
                 own};
      message.has_reduction = true;
      out.local_actions.clear();
      out.operands.clear();
      return;
    }
}

std::shared_ptr<const CollectivePlan> CollectivePlanCache::find(const EngineCall& call) noexcept {
  for (size_t looked = 0; looked < plans_.size(); ++looked) {
    const size_t i = (last_ + looked) % plans_.size();
    if (!plans_[i]->matches(call)) continue;
    last_ = i;
    return plans_[i];
  }
  return nullptr;
}

void CollectivePlanCache::add(std::shared_ptr<const CollectivePlan> plan) {
  if (plans_.size() < kMaxPlans) {
    plans_.push_back(std::move(plan));
    last_ = plans_.size() - 1;
    return;
  }
  last_ = oldest_++ % kMaxPlans;
  plans_[last_] = std::move(plan);
}

}  // namespace torch::comms::ctran
