#include "schedule/interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "schedule/rank_memory.hpp"

namespace torch::comms::schedule {
namespace {

uint64_t mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Cell leaf(int rank, int64_t index) {
  const uint64_t bits =
      mix((static_cast<uint64_t>(rank + 1) << 40) + static_cast<uint64_t>(index) + 1);
  const auto mantissa = static_cast<float>(static_cast<int64_t>(bits >> 40) - (1 << 23));
  return {true, bits, mix(bits), std::ldexp(mantissa, static_cast<int>(bits % 24) - 12)};
}

Cell add(const Cell& left, const Cell& right) {
  return {true, left.sum + right.sum, mix(left.order * 3 + mix(right.order)),
          left.value + right.value};
}

Program program_of(const Algorithm& algorithm, const Problem& problem) {
  return {problem, algorithm.scratch(problem), algorithm.steps(problem),
          [&algorithm, problem, step = Step()](int64_t t, Program::Actions& out) mutable {
            algorithm.step(problem, t, step);
            out.transfers.assign(step.transfers().begin(), step.transfers().end());
            out.local.assign(step.local().begin(), step.local().end());
          }};
}

namespace {

bool sends(const Action& action) {
  return action.kind == ActionKind::kSend || action.kind == ActionKind::kSignal;
}

struct Message {
  int64_t step = 0;
  int signals = 0;
  std::vector<Cell> cells;
};

// From one rank to another.
struct Channel {
  std::vector<Message> under_way;  // oldest first
  bool sending = false;            // the source has posted what it sends in its step
  bool receiving = false;          // the target has posted what it receives in its step
};

struct Rank {
  Rank(const Program& what, bool in_place)
      : program(&what), memory(what.problem, what.scratch, in_place) {}
  const Program* program;
  RankMemory memory;
  int64_t step = -1;
  int pending = 0;  // messages of this step
  Program::Actions actions;
  Cost measured;
};

class Run {
 public:
  Run(std::span<const Program> programs, const Conditions& conditions)
      : credits_(conditions.credits),
        size_(static_cast<int>(programs.size())),
        random_(conditions.seed),
        channels_(programs.size() * programs.size()),
        waking_(channels_.size() + programs.size(), false) {
    for (const Program& program : programs) ranks_.emplace_back(program, conditions.in_place);
    for (int rank = 0; rank < size_; ++rank) wake(rank_event(rank));
  }

  void go(Report& report) {
    while (!events_.empty()) {
      std::swap(events_[random_() % events_.size()], events_.back());
      const int event = events_.back();
      events_.pop_back();
      waking_[event] = false;
      if (event >= rank_event(0))
        begin_step(event - rank_event(0));
      else
        move(event / size_, event % size_);
    }
    finish(report);
  }

 private:
  int rank_event(int rank) const { return size_ * size_ + rank; }
  Channel& channel(int from, int to) { return channels_[static_cast<size_t>(from) * size_ + to]; }

  void wake(int event) {
    if (waking_[event]) return;
    waking_[event] = true;
    events_.push_back(event);
  }

  [[noreturn]] void fail(int rank, const std::string& what) const {
    throw BrokenRule("rank " + std::to_string(rank) + ", step " +
                     std::to_string(ranks_[rank].step) + ": " + what);
  }

  void begin_step(int id) {
    Rank& rank = ranks_[id];
    if (++rank.step == rank.program->steps) return;
    rank.program->step(rank.step, rank.actions);
    if (busy_.size() <= static_cast<size_t>(rank.step)) busy_.resize(rank.step + 1, false);
    if (!rank.actions.transfers.empty()) busy_[rank.step] = true;
    guarded(id, [&] { rank.memory.check_transfers(rank.actions.transfers); });
    for (const Action& action : rank.actions.transfers) {
      const int peer = action.peer;
      if (peer < 0 || peer >= size_ || peer == id) fail(id, "peer " + std::to_string(peer));
      bool& posted = sends(action) ? channel(id, peer).sending : channel(peer, id).receiving;
      if (posted) continue;
      posted = true;
      ++rank.pending;
      wake(sends(action) ? id * size_ + peer : peer * size_ + id);
    }
    if (rank.pending == 0) end_step(id);
  }

  // Something between two ranks moves on, if it can: a message leaves or arrives.
  void move(int from, int to) {
    Channel& way = channel(from, to);
    const bool meets = credits_ == 0 && way.sending && way.receiving;
    const bool leaves = meets || (way.sending && static_cast<int>(way.under_way.size()) < credits_);
    const bool arrives = !way.under_way.empty() && way.receiving;
    if (leaves && (!arrives || random_() % 2 == 0)) {
      leave(from, to);
      if (meets) arrive(from, to);
    } else if (arrives) {
      arrive(from, to);
    } else {
      return;
    }
    wake(from * size_ + to);
  }

  void leave(int from, int to) {
    Rank& rank = ranks_[from];
    Message message{rank.step, 0, {}};
    if (!used_.empty()) {
      message.cells = std::move(used_.back());
      used_.pop_back();
      message.cells.clear();
    }
    for (const Action& action : rank.actions.transfers) {
      if (!sends(action) || action.peer != to) continue;
      if (action.kind == ActionKind::kSignal) ++message.signals;
      guarded(from, [&] {
        const auto cells = rank.memory.read(action.from);
        message.cells.insert(message.cells.end(), cells.begin(), cells.end());
      });
    }
    rank.measured.messages += 1;
    rank.measured.sent += static_cast<int64_t>(message.cells.size());
    channel(from, to).under_way.push_back(std::move(message));
    channel(from, to).sending = false;
    if (--rank.pending == 0) end_step(from);
  }

  void arrive(int from, int to) {
    Rank& rank = ranks_[to];
    Channel& way = channel(from, to);
    Message message = std::move(way.under_way.front());
    way.under_way.erase(way.under_way.begin());
    if (message.step != rank.step)
      fail(to, "gets what rank " + std::to_string(from) + " sent in step " +
                   std::to_string(message.step));
    std::span<const Cell> rest = message.cells;
    int signals = 0;
    bool fits = true;
    for (const Action& action : rank.actions.transfers) {
      if (sends(action) || action.peer != from) continue;
      if (action.kind == ActionKind::kWait) ++signals;
      const auto count = static_cast<size_t>(action.into.count);
      if (fits = count <= rest.size(); !fits) break;
      guarded(to, [&] { take(rank, action, rest.first(count)); });
      rest = rest.subspan(count);
    }
    if (!fits || !rest.empty() || signals != message.signals)
      fail(to, "expects another size than the " + std::to_string(message.cells.size()) +
                   " elements from rank " + std::to_string(from));
    rank.measured.received += static_cast<int64_t>(message.cells.size());
    used_.push_back(std::move(message.cells));
    way.receiving = false;
    if (--rank.pending == 0) end_step(to);
  }

  static void take(Rank& rank, const Action& action, std::span<const Cell> incoming) {
    const auto into = rank.memory.write(action.into);
    if (action.kind != ActionKind::kReceiveReduce) {
      std::copy(incoming.begin(), incoming.end(), into.begin());
      return;
    }
    const auto own = rank.memory.read(action.from);
    for (size_t i = 0; i < into.size(); ++i)
      into[i] = action.left_operand == LeftOperand::kOwn ? add(own[i], incoming[i])
                                                         : add(incoming[i], own[i]);
    rank.measured.reduced += action.into.count;
  }

  void end_step(int id) {
    Rank& rank = ranks_[id];
    guarded(id, [&] {
      for (const Action& action : rank.actions.local) run_local(rank, action);
    });
    wake(rank_event(id));
  }

  static void run_local(Rank& rank, const Action& action) {
    rank.memory.check_operands(action);
    const auto into = rank.memory.write(action.into);
    const auto from = rank.memory.read(action.from);
    if (action.kind == ActionKind::kCopy) {
      std::copy(from.begin(), from.end(), into.begin());
      return;
    }
    const auto other = rank.memory.read(action.other);
    for (size_t i = 0; i < into.size(); ++i) into[i] = add(from[i], other[i]);
    rank.measured.reduced += action.into.count;
  }

  template <class Body>
  void guarded(int id, const Body& body) const {
    try {
      body();
    } catch (const BrokenRule& rule) {
      fail(id, rule.what());
    }
  }

  // Who has not ended, and why not.
  std::string stuck() {
    std::string text;
    for (int id = 0; id < size_; ++id) {
      if (ranks_[id].step == ranks_[id].program->steps) continue;
      text += (text.empty() ? "deadlock: rank " : "; rank ") + std::to_string(id) + " in step " +
              std::to_string(ranks_[id].step) + " waits";
      for (int peer = 0; peer < size_; ++peer) {
        if (channel(peer, id).receiving) text += " for " + std::to_string(peer);
        if (channel(id, peer).sending) text += " to send to " + std::to_string(peer);
      }
    }
    return text;
  }

  void finish(Report& report) {
    if (const std::string text = stuck(); !text.empty()) throw BrokenRule(text);
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to)
        if (!channel(from, to).under_way.empty())
          fail(to, "never takes what rank " + std::to_string(from) + " sent");
    for (int id = 0; id < size_; ++id) {
      guarded(id, [&] { ranks_[id].memory.check_input(); });
      ranks_[id].measured.steps = ranks_[id].program->steps;
      ranks_[id].measured.scratch = ranks_[id].program->scratch;
      report.outputs.push_back(ranks_[id].memory.output());
      report.measured.push_back(ranks_[id].measured);
    }
    report.idle_steps = std::count(busy_.begin(), busy_.end(), false);
  }

  int credits_, size_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;  // by source, then target
  std::vector<bool> waking_;  // by event: a channel's index, or size * size + rank to begin a step
  std::vector<int> events_;   // what may be possible now
  std::vector<std::vector<Cell>> used_;  // memory of messages that arrived
  std::vector<bool> busy_;               // by step
};

}  // namespace

Report interpret(std::span<const Program> programs, const Conditions& conditions) {
  Report report;
  try {
    Run(programs, conditions).go(report);
  } catch (const BrokenRule& rule) {
    report.failure = rule.what();
  }
  return report;
}

}  // namespace torch::comms::schedule
