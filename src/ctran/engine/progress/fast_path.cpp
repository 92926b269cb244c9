#include "ctran/engine/progress/fast_path.hpp"

#include <algorithm>
#include <cstring>

#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"

namespace torch::comms::ctran {
namespace {

constexpr uint64_t kMostScratch = uint64_t{512} * 1024;  // bytes
// Up to these sizes, messages that are only copied use inline eager; larger ones use the link's
// single copy if it has one. Measured with two ranks on two cores, in us, inline eager and single
// copy: all_gather of two messages of 16 KB 2.4 and 2.2, of 64 KB 9.3 and 7.2. Broadcasts of 16 KB,
// which are written and read at the same time, 0.9 and 1.4. Broadcasts of 64 KB 4.0 and 5.2 on one
// machine, 7.4 and 7.3 on another, 29 and 7.8 if the cores share no cache. Directly from a window,
// an all_gather of two messages of 16 KB takes 1.2, a broadcast of 64 KB 1.7 to 2.1.
constexpr uint64_t kMostBothWays = uint64_t{8} * 1024, kMostOneWay = uint64_t{16} * 1024;  // bytes

}  // namespace

// Reduces a message with an operand of this rank where it arrives.
class FastPath::FastPathReducer final : public transport::ReceiveSink {
 public:
  FastPathReducer(const FastPath& path, const ReceiveAction& arrival) noexcept
      : path_(path), arrival_(arrival) {}
  void consume(uint64_t offset, ConstBytes chunk) noexcept override {
    const void* operands[] = {path_.address_of(arrival_.own) + offset, chunk.data()};
    if (arrival_.first == schedule::LeftOperand::kIncoming) std::swap(operands[0], operands[1]);
    path_.plan_->reduce(path_.address_of(arrival_.into) + offset, operands, chunk.size());
  }

 private:
  const FastPath& path_;
  const ReceiveAction& arrival_;
};

FastPath::FastPath(const GroupState& group, std::shared_ptr<const CollectivePlan> plan)
    : plan_(std::move(plan)), stream_(group.base + GroupState::kCollectives) {}
FastPath::~FastPath() = default;

std::unique_ptr<FastPath> FastPath::create(const GroupState& group,
                                           std::shared_ptr<const CollectivePlan> plan) {
  const auto& planned = plan->planned_reduction();
  const bool plain = !planned.is_wide && !planned.has_factor && !planned.has_final_division;
  if (!plain || !plan->has_cached_steps() || plan->scratch_bytes() > kMostScratch) return nullptr;
  std::unique_ptr<FastPath> path(new FastPath(group, std::move(plan)));
  return path->resolve(group) ? std::move(path) : nullptr;
}

// Looks up the links and the ranges of all transfers.
// Returns: false if a transfer has several parts, or its link does not support inline eager for it.
bool FastPath::resolve(const GroupState& group) {
  const bool adds = plan_->planned_reduction().reduction.has_value();
  StepPlan unused;
  schedule::Step memory;
  bool both_ways = false;
  const auto add = [&](const PlannedMessage& message, std::vector<FastPathTransfer>& list) {
    if (message.count > 1) return false;
    const int peer = group.ranks[static_cast<size_t>(message.peer)];
    auto& link = group.engine->link_to(peer);
    list.push_back({&link, peer, {.bytes = message.bytes}, nullptr});
    const uint64_t most = link.inline_eager_bytes(peer);
    const bool could_be_one_copy = both_ways && link.capabilities().has_single_copy;
    const uint64_t copied = std::min(most, could_be_one_copy ? kMostBothWays : kMostOneWay);
    return most > 0 && message.bytes <= (adds ? most : copied);
  };
  for (int64_t t = 0; t < plan_->steps(); ++t) {
    auto& step = steps_.emplace_back();
    step.plan = &plan_->step(t, unused, memory);
    if (step.plan->receives.size() + step.plan->sends.size() > kMostTransfers) return false;
    both_ways = !step.plan->receives.empty() && !step.plan->sends.empty();
    for (const auto& message : step.plan->receives) {
      if (!add(message, step.receives)) return false;
      if (message.count == 0) continue;
      step.receives.back().arrival = &step.plan->receive_actions[message.first];
      step.receives.back().part = step.receives.back().arrival->into;
    }
    for (const auto& message : step.plan->sends) {
      if (!add(message, step.sends)) return false;
      if (message.count > 0) step.sends.back().part = step.plan->sent[message.first];
    }
  }
  scratch_.resize(plan_->scratch_bytes());
  buffers_[2].assign(Bytes(scratch_));
  bases_[2] = scratch_.data();
  return true;
}

bool FastPath::is_contiguous(const BufferRange& part) const noexcept {
  return part.bytes == 0 ||
         buffers_[static_cast<size_t>(part.buffer)].from(part.begin).size() >= part.bytes;
}

bool FastPath::begin(const EngineCall& call, uint32_t tag) {
  if (!bind_buffers(call)) return false;
  tag_ = tag;
  step_ = received_ = sent_ = 0;
  transferred_ = 0;
  return true;
}

// Sets the buffers of a call.
// Returns: false if they do not have the plan's sizes, or split a transfer.
bool FastPath::bind_buffers(const EngineCall& call) {
  has_contiguous_buffers_ = call.input.size() <= 1 && call.output.size() <= 1;
  if (has_contiguous_buffers_) {
    const ConstBytes input = call.input.empty() ? ConstBytes() : call.input[0];
    const Bytes output = call.output.empty() ? Bytes() : call.output[0];
    bases_[0] = const_cast<std::byte*>(input.data());
    bases_[1] = output.data();
    return (plan_->input_bytes() == 0 || plan_->input_bytes() == input.size()) &&
           (plan_->output_bytes() == 0 || plan_->output_bytes() == output.size());
  }
  buffers_[0].assign(call.input);
  buffers_[1].assign(call.output);
  const auto suits = [](const IoVector& buffer, uint64_t bytes) {
    return bytes == 0 || buffer.bytes() == bytes;
  };
  if (!suits(buffers_[0], plan_->input_bytes()) || !suits(buffers_[1], plan_->output_bytes()))
    return false;
  const auto whole = [&](const BufferRange& part) { return is_contiguous(part); };
  return std::ranges::all_of(steps_, [&](const FastPathStep& step) {
    const auto& plan = *step.plan;
    return std::ranges::all_of(plan.sent, whole) && std::ranges::all_of(plan.operands, whole) &&
           std::ranges::all_of(plan.local_actions, whole, &LocalAction::into) &&
           std::ranges::all_of(plan.receive_actions, [&](const ReceiveAction& arrival) {
             return whole(arrival.into) && (!arrival.is_reduction || whole(arrival.own));
           });
  });
}

bool FastPath::advance() {
  while (step_ < steps_.size()) {
    const auto& step = steps_[step_];
    const bool first_look = received_ == 0 && transferred_ == 0;
    if (sent_ < step.sends.size()) send(step);
    if (first_look && step.plan->can_run_local_first) run_local_actions(*step.plan);
    if (!receive(step) || sent_ < step.sends.size()) return false;
    if (!step.plan->can_run_local_first) run_local_actions(*step.plan);
    ++step_;
    received_ = sent_ = 0;
    transferred_ = 0;
  }
  return true;
}

// Sends in order: a send that finds no room waits, and so do those after it.
void FastPath::send(const FastPathStep& step) {
  for (; sent_ < step.sends.size(); ++sent_) {
    const auto& to = step.sends[sent_];
    const ConstBytes bytes(address_of(to.part), to.part.bytes);
    if (!to.link->try_send(to.peer, stream_, bytes, tag_)) return;
    transferred_ |= uint64_t{1} << (step.receives.size() + sent_);
  }
}

// Receives in order: the first missing message ends the attempt.
bool FastPath::receive(const FastPathStep& step) {
  for (; received_ < step.receives.size(); ++received_) {
    const auto& from = step.receives[received_];
    bool received = false;
    if (from.arrival != nullptr && from.arrival->is_reduction) {
      FastPathReducer adder(*this, *from.arrival);
      received = from.link->try_receive(from.peer, stream_,
                                        {.sink = &adder, .bytes = from.part.bytes}, tag_);
    } else {
      const Bytes into(address_of(from.part), from.part.bytes);
      received =
          from.link->try_receive(from.peer, stream_, {.into = into, .bytes = into.size()}, tag_);
    }
    if (!received) return false;
    transferred_ |= uint64_t{1} << received_;
  }
  return true;
}

void FastPath::run_local_actions(const StepPlan& step) const {
  std::array<const void*, Reduction::kMostOperands> operands;
  for (const auto& local : step.local_actions) {
    for (uint32_t i = 0; i < local.count; ++i)
      operands[i] = address_of(step.operands[local.first + i]);
    auto* into = address_of(local.into);
    if (local.count > 1)
      plan_->reduce(into, {operands.data(), local.count}, local.into.bytes);
    else if (into != operands[0])
      std::memcpy(into, operands[0], local.into.bytes);
  }
}

}  // namespace torch::comms::ctran
