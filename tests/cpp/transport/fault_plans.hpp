#pragma once

#include <sched.h>

#include <list>
#include <random>

#include "transport/fault.hpp"
#include "transport/world.hpp"

// Random traffic under random faults, over any link. All ranks are driven by one thread, step by
// step: nothing waits, so nothing can hang but by standing still, and that is seen.
namespace torch::comms::transport::test {

struct PlannedRun {
  int completed = 0, failed = 0;  // operations
};

class TestTraffic {
 public:
  TestTraffic(std::vector<std::unique_ptr<Transport>>& links, uint64_t seed)
      : links_(links), random_(seed) {
    const auto size = links.size();
    memory_.resize(size);
    for (size_t rank = 0; rank < size; ++rank) {
      memory_[rank].resize(size * kSlot);
      opened_.push_back(links[rank]->register_memory(memory_[rank]));
    }
    for (int from = 0; from < static_cast<int>(size); ++from)
      for (int to = 0; to < static_cast<int>(size); ++to)
        if (from != to || size == 1) exchange(from, to);
  }

  // Until all is done, or nothing has moved for long. Then whatever is left is aborted.
  PlannedRun finish(int max_idle_steps, bool yield) {
    for (int idle = 0; idle < max_idle_steps && !all_done(); ++idle) {
      bool moved = false;
      for (auto& link : links_) moved |= link->progress();
      if (moved) idle = 0;
      if (!moved && yield) ::sched_yield();
    }
    for (auto& link : links_) link->abort_signal().raise();
    for (auto& link : links_) link->progress();
    EXPECT_TRUE(all_done()) << "in flight after an abort";
    return check_results();
  }

 private:
  static constexpr size_t kSlot = 8192;
  struct Message {
    int from, to;
    uint64_t number;
    std::vector<std::byte> sent, received;
    Request out, back;
  };
  struct Put {
    int from, to;
    std::vector<std::byte> sent;
    std::unique_ptr<RemoteMemory> remote;
    Request out, flushed;
  };

  size_t random_size() {
    const auto kind = random_() % 8;
    return kind == 0 ? 0 : kind == 7 ? random_() % 80'000 : random_() % 900;
  }

  void exchange(int from, int to) {
    auto& sender = *links_[static_cast<size_t>(from)];
    auto& receiver = *links_[static_cast<size_t>(to)];
    for (uint64_t number = 0; number < 12; ++number) {
      const auto stream = static_cast<uint32_t>(random_() % 3);
      const size_t size = random_size();
      auto& message = messages_.emplace_back();
      message.from = from;
      message.to = to;
      message.number = number;
      message.sent = pattern(from, to, number, size);
      message.received.resize(size);
      sender.send(message.out, to, stream, ConstBytes(message.sent));
      receiver.receive(message.back, from, stream, Bytes(message.received));
      if (random_() % 4 == 0) sender.progress();
    }
    auto& put = puts_.emplace_back();
    put.from = from;
    put.to = to;
    put.sent = pattern(from, to, 77, 1 + random_() % kSlot);
    put.remote = sender.import(opened_[static_cast<size_t>(to)]->handle());
    sender.put(put.out, *put.remote, static_cast<size_t>(from) * kSlot, put.sent);
    sender.flush(put.flushed, to);
  }

  bool all_done() const {
    for (const auto& m : messages_)
      if (!m.out.is_done() || !m.back.is_done()) return false;
    for (const auto& p : puts_)
      if (!p.out.is_done() || !p.flushed.is_done()) return false;
    return true;
  }

  static void count(const Request& request, PlannedRun& run) {
    if (request.is_ok()) {
      ++run.completed;
      return;
    }
    ++run.failed;
    EXPECT_TRUE(request.error() == Errc::kPeerFailed || request.error() == Errc::kAborted);
  }

  PlannedRun check_results() {
    PlannedRun run;
    for (const auto& m : messages_) {
      count(m.out, run);
      count(m.back, run);
      if (m.back.is_ok()) {
        EXPECT_EQ(m.back.bytes(), m.sent.size());
        EXPECT_TRUE(m.received == m.sent) << m.from << " to " << m.to << ", " << m.number;
      }
    }
    for (const auto& p : puts_) {
      count(p.out, run);
      count(p.flushed, run);
      const auto* at =
          memory_[static_cast<size_t>(p.to)].data() + static_cast<size_t>(p.from) * kSlot;
      if (p.flushed.is_ok()) {
        EXPECT_TRUE(std::equal(p.sent.begin(), p.sent.end(), at));
      }
    }
    return run;
  }

  std::vector<std::unique_ptr<Transport>>& links_;
  std::mt19937_64 random_;
  std::list<Message> messages_;
  std::list<Put> puts_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<MemoryRegion>> opened_;
};

inline FaultPlan plan_for(uint64_t seed) {
  FaultPlan plan{.seed = seed};
  switch (seed % 4) {
    case 0:
      plan.delay = 100;
      break;
    case 1:
      plan.duplicate = 5;
      plan.delay = 50;
      break;
    case 2:
      plan.drop = 5;
      plan.delay = 20;
      break;
    default:
      plan.drop = plan.duplicate = plan.reset = 2;
      plan.delay = 50;
  }
  return plan;
}

// Every operation of every plan ends right or with a typed error; plans that only delay end right.
inline void run_fault_plans(const Link& under_test, uint64_t plans, int max_idle_steps,
                            bool yield) {
  PlannedRun all;
  if (kSanitized) plans /= 5;
  for (uint64_t seed = 1; seed <= plans; ++seed) {
    const auto plan = plan_for(seed);
    SCOPED_TRACE(under_test.name + ", " + plan.describe());
    auto links = make_links(under_test, [&](TransportOptions& options) {
      options.wrap_connection = inject_faults(plan, options.rank);
      options.eager_bytes = 512;
    });
    // Declared after the links: the traffic's memory goes first.
    TestTraffic traffic(links, seed);
    const auto run = traffic.finish(max_idle_steps, yield);
    if (seed % 4 == 0) {
      EXPECT_EQ(run.failed, 0);
    }
    all.completed += run.completed;
    all.failed += run.failed;
    if (testing::Test::HasFailure()) return;
  }
  // Or the faults were not injected, or hit everything.
  EXPECT_GT(all.completed, 0);
  EXPECT_GT(all.failed, 0);
}

}  // namespace torch::comms::transport::test
