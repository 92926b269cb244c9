#include "sim/collective.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

namespace torch::comms::sim {
namespace {

using schedule::Action;
using schedule::ActionKind;
using schedule::Problem;
using schedule::Step;

constexpr int kSampled = 256;  // steps compared to see whether one rank represents all
constexpr int64_t kInterruptCheckInterval = 1 << 16;  // steps between two interrupt checks

Problem problem_of(const CollectiveRun& run, int rank) {
  auto options = run.options;
  options.local_size = run.network.local_size;
  const int64_t count = (run.bytes + run.element_bytes - 1) / run.element_bytes;
  const auto operation = run.algorithm->operation;
  using enum schedule::Operation;
  switch (operation) {
    case kAllToAll: {
      const auto blocks = schedule::Blocks::equal(count, run.ranks);
      return schedule::all_to_all_problem(rank, blocks, blocks, options);
    }
    case kGather:
    case kScatter:
    case kAllGather:
    case kReduceScatter:
      return schedule::block_problem(operation, rank, schedule::Blocks::equal(count, run.ranks),
                                     run.root, options);
    case kBarrier:
      return schedule::vector_problem(operation, rank, run.ranks, 0, 0, options);
    default:
      return schedule::vector_problem(operation, rank, run.ranks, count, run.root, options);
  }
}

// The messages of one step of one rank; all transfers to one peer form one message.
class StepMessages {
 public:
  explicit StepMessages(int ranks) : at_(static_cast<size_t>(ranks)), seen_(at_.size()) {}

  struct SentMessage {
    int to;
    int64_t count;
  };
  void read(const Step& step) {
    ++stamp_;
    sent_.clear();
    sources_ = 0;
    computed_ = 0;
    for (const Action& action : step.transfers()) {
      const auto peer = static_cast<size_t>(action.peer);
      if (action.kind == ActionKind::kSend || action.kind == ActionKind::kSignal) {
        if (at_[peer].stamp != stamp_) {
          at_[peer] = {stamp_, sent_.size()};
          sent_.push_back({action.peer, 0});
        }
        sent_[at_[peer].index].count += action.from.count;
      } else {
        if (seen_[peer] != stamp_) ++sources_;
        seen_[peer] = stamp_;
        if (action.kind == ActionKind::kReceiveReduce) computed_ += action.into.count;
      }
    }
    for (const Action& action : step.local()) computed_ += action.into.count;
  }
  const std::vector<SentMessage>& sent() const { return sent_; }
  int sources() const { return sources_; }
  int64_t computed() const { return computed_; }  // elements reduced or copied

 private:
  struct MessageIndex {
    uint64_t stamp = 0;
    size_t index = 0;
  };
  std::vector<MessageIndex> at_;
  std::vector<uint64_t> seen_;
  std::vector<SentMessage> sent_;
  uint64_t stamp_ = 0;
  int sources_ = 0;
  int64_t computed_ = 0;
};

// Tests with random steps whether all ranks do the same as rank 0, rotated, so that the ranks of a
// period can represent all. Returns: the number of compared steps; 0 if they differ, for example as
// block sizes differ by an element.
int stands_for_all(const CollectiveRun& run, int64_t steps, StepMessages& messages) {
  std::mt19937 random(12345);  // fixed seed  NOLINT(bugprone-random-generator-seed)
  const auto read = [&](int rank, int64_t t) {
    Step step;
    run.algorithm->step(problem_of(run, rank), t, step);
    messages.read(step);
    std::map<int, int64_t> by_distance;
    for (const auto& sent : messages.sent())
      by_distance[(sent.to - rank + run.ranks) % run.ranks] = sent.count;
    return std::tuple(by_distance, messages.sources(), messages.computed());
  };
  int compared = 0;
  for (int i = 0; i < kSampled; ++i, ++compared) {
    const int rank = static_cast<int>(random() % static_cast<unsigned>(run.ranks));
    const auto t = static_cast<int64_t>(random() % static_cast<uint64_t>(steps));
    if (read(rank, t) != read(0, t)) return 0;
    // A step with messages to every rank counts as many comparisons.
    if (messages.sent().size() > 1000) i += 31;
  }
  return compared;
}

struct CollectiveEvent {
  int rank;  // where a message arrives, or a step begins
  int from;  // -1: a step begins
  int64_t step;
  int64_t bytes;
  Fabric::NetworkPath path;
};

class CollectiveSimulation {
 public:
  CollectiveSimulation(const CollectiveRun& run, const SimInterruptCheck& interrupt_check);
  CollectiveResult result();

 private:
  struct EarlyArrival {
    int64_t step;
    Ticks there;
    Fabric::NetworkPath path;
  };
  struct CollectiveRank {
    int64_t step = 0;
    Ticks processor = 0;       // busy until then
    Ticks transfers_done = 0;  // when the transfers of the step so far are done
    int64_t computed = 0;
    int awaited = 0;
    bool in_step = false;
    int64_t messages = 0, bytes = 0;
    std::vector<EarlyArrival> early = {};
  };
  int choose_enumerated();
  void begin(int rank, Ticks at);
  void send(int rank, const StepMessages::SentMessage& sent);
  void receive(const CollectiveEvent& message);
  void take(CollectiveRank& self, Ticks there, Ticks overhead);
  void end(int rank);
  void check_interrupt() {
    if (interrupt_check_ && ++step_count_ % kInterruptCheckInterval == 0) interrupt_check_();
  }

  const CollectiveRun& run_;
  const SimInterruptCheck& interrupt_check_;
  Problem problem_;
  int64_t steps_;
  StepMessages messages_;
  int sampled_ = 0;
  int enumerated_;
  Fabric fabric_;
  std::vector<CollectiveRank> ranks_;
  EventQueue<CollectiveEvent> queue_;
  Step step_;
  Ticks last_ = 0, first_ = -1;
  int64_t step_count_ = 0, drops_ = 0;
};

CollectiveSimulation::CollectiveSimulation(const CollectiveRun& run,
                                           const SimInterruptCheck& interrupt_check)
    : run_(run),
      interrupt_check_(interrupt_check),
      problem_(problem_of(run, 0)),
      steps_(run.ranks > 1 ? run.algorithm->steps(problem_) : 0),
      messages_(run.ranks),
      enumerated_(choose_enumerated()),
      fabric_(run.network, enumerated_),
      ranks_(static_cast<size_t>(enumerated_)) {}

int CollectiveSimulation::choose_enumerated() {
  const int period = run_.network.period();
  const bool repeats = run_.algorithm->is_rotation_invariant && !run_.faults.has_any() &&
                       run_.ranks > period && run_.ranks % period == 0;
  int enumerated = run_.ranks;
  if (repeats) sampled_ = stands_for_all(run_, steps_, messages_);
  if (sampled_ > 0) enumerated = period;
  if (steps_ > 0 && enumerated > run_.max_steps / steps_)
    throw std::invalid_argument(
        std::string(run_.algorithm->name) + ": " + std::to_string(run_.ranks) + " ranks take " +
        std::to_string(steps_) + " steps each, and the " + std::to_string(enumerated) +
        " ranks that differ must be simulated: more than the " + std::to_string(run_.max_steps) +
        " steps allowed in a run; take fewer ranks");
  return enumerated;
}

void CollectiveSimulation::begin(int rank, Ticks at) {
  auto& self = ranks_[static_cast<size_t>(rank)];
  Problem problem = problem_of(run_, rank);
  for (;; ++self.step) {
    if (self.step == steps_) {
      last_ = std::max(last_, at);
      if (first_ < 0 || at < first_) first_ = at;
      return;
    }
    check_interrupt();
    run_.algorithm->step(problem, self.step, step_);
    if (!step_.transfers().empty() || !step_.local().empty()) break;
  }
  messages_.read(step_);
  self.in_step = true;
  self.processor = std::max(self.processor, at);
  self.transfers_done = at;
  self.awaited = messages_.sources();
  self.computed = messages_.computed();
  for (const auto& sent : messages_.sent()) send(rank, sent);
  std::erase_if(self.early, [&](const EarlyArrival& early) {
    if (early.step != self.step) return false;
    take(self, early.there, fabric_.overhead(early.path));
    return true;
  });
  if (self.awaited == 0) end(rank);
}

void CollectiveSimulation::send(int rank, const StepMessages::SentMessage& sent) {
  auto& self = ranks_[static_cast<size_t>(rank)];
  const auto way = fabric_.path(rank, sent.to);
  const int64_t bytes = sent.count * run_.element_bytes;
  self.processor = after(self.processor, fabric_.overhead(way));
  const auto send_times = fabric_.send(rank, way, bytes, self.processor);
  self.transfers_done = std::max({self.transfers_done, send_times.released, self.processor});
  Ticks late = 0;
  if (run_.faults.has_any()) {
    late = run_.faults.lateness(rank, sent.to, static_cast<uint64_t>(self.step));
    if (late > 0) ++drops_;
  }
  ++self.messages;
  self.bytes += bytes;
  queue_.add(send_times.at_peer + late, {sent.to % enumerated_, rank, self.step, bytes, way});
}

void CollectiveSimulation::receive(const CollectiveEvent& message) {
  auto& self = ranks_[static_cast<size_t>(message.rank)];
  const Ticks there = fabric_.receive(message.rank, message.path, message.bytes, queue_.now());
  if (!self.in_step || self.step != message.step) {
    self.early.push_back({message.step, there, message.path});
    return;
  }
  take(self, there, fabric_.overhead(message.path));
  if (self.awaited == 0) end(message.rank);
}

void CollectiveSimulation::take(CollectiveRank& self, Ticks there, Ticks overhead) {
  self.processor = after(std::max(self.processor, there), overhead);
  self.transfers_done = std::max(self.transfers_done, self.processor);
  --self.awaited;
}

void CollectiveSimulation::end(int rank) {
  auto& self = ranks_[static_cast<size_t>(rank)];
  self.in_step = false;
  ++self.step;
  const Ticks at =
      self.transfers_done + from_ps(static_cast<double>(self.computed) * run_.element_bytes *
                                    run_.network.compute_ns * 1e3);
  self.processor = std::max(self.processor, at);
  queue_.add(at, {rank, -1, self.step, 0, {}});
}

CollectiveResult CollectiveSimulation::result() {
  for (int rank = 0; rank < enumerated_; ++rank) queue_.add(0, {rank, -1, 0, 0, {}});
  while (!queue_.empty()) {
    const CollectiveEvent next = queue_.pop();
    if (next.from < 0)
      begin(next.rank, queue_.now());
    else
      receive(next);
  }
  CollectiveResult result;
  size_t bytes = fabric_.bytes() + queue_.peak_bytes() + sizeof(CollectiveRank) * ranks_.capacity();
  for (const auto& rank : ranks_) {
    TC_CHECK(rank.step == steps_);  // otherwise the schedule waits for a message that is never sent
    result.messages.max = std::max(result.messages.max, rank.messages);
    result.bytes_sent.max = std::max(result.bytes_sent.max, rank.bytes);
    result.messages.mean += static_cast<double>(rank.messages) / enumerated_;
    result.bytes_sent.mean += static_cast<double>(rank.bytes) / enumerated_;
    bytes += rank.early.capacity() * sizeof(EarlyArrival);
  }
  result.time_us = to_us(last_);
  result.first_us = to_us(std::max<Ticks>(first_, 0));
  result.steps = steps_;
  if (run_.ranks > 1) result.cost = run_.algorithm->cost(problem_);
  result.enumerated = enumerated_;
  result.sampled = sampled_;
  result.events = queue_.popped();
  result.drops = drops_;
  result.bytes_per_rank = static_cast<double>(bytes) / enumerated_;
  return result;
}

}  // namespace

CollectiveResult simulate(const CollectiveRun& run, const SimInterruptCheck& interrupt_check) {
  validate(run.network);
  if (run.algorithm == nullptr) throw std::invalid_argument("no algorithm was given");
  if (run.element_bytes < 1 || run.bytes < 0)
    throw std::invalid_argument(
        "sizes in bytes must not be negative, and elements need at least 1 byte");
  const auto why_not = run.algorithm->unsupported_reason(problem_of(run, 0));
  if (!why_not.empty())
    throw std::invalid_argument(std::string(run.algorithm->name) + ": " + std::string(why_not));
  return CollectiveSimulation(run, interrupt_check).result();
}

}  // namespace torch::comms::sim
