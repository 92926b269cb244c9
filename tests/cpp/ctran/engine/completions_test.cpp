#include <atomic>

#include "ctran/engine/engines.hpp"

// How listeners learn of the ends of calls.
namespace torch::comms::ctran::test {
namespace {

class Counts final : public CompletionListener {
 public:
  void on_complete(const CommError* error) noexcept override {
    (error == nullptr ? done : failed).fetch_add(1);
  }
  std::atomic<int> done{0}, failed{0};
};

// Other threads tell of ends all the while; several, so that the lock of the list is contended.
TEST(Endings, ACallThatFailsIsToldWithItsErrorWhoeverTellsIt) {
  constexpr int kThreads = 3, kRounds = 400, kCalls = 200;
  const auto engines = engines_of(1);
  const auto& engine = engines[0];
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      while (!stops.load()) engine->deliver_completions();
    });
  Counts counts;
  std::vector<float> payload(1);
  const Message receive(Operation::kReceive, 0, payload, 1);
  for (int round = 0; round < kRounds; ++round) {
    const auto base = engine->propose_streams(0);
    ASSERT_TRUE(engine->claim_streams(base));
    const auto group = std::make_shared<GroupState>(engine, "waits", std::vector<int>{0}, base);
    engine->add_group(group);
    for (int i = 0; i < kCalls; ++i) start_message(group, receive.call, &counts)->release();
    engine->remove_group(group);
  }
  stops.store(true);
  for (auto& thread : threads) thread.join();
  engine->deliver_completions();
  shut_down(engines);
  EXPECT_EQ(counts.done.load(), 0);
  EXPECT_EQ(counts.failed.load(), kRounds * kCalls);
}

}  // namespace
}  // namespace torch::comms::ctran::test
