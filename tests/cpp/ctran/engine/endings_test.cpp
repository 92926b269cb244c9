#include <atomic>

#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"
#include "ctran/engine/messages_task.hpp"
#include "ctran/engine/world.hpp"

// How listeners learn of the ends of calls.
namespace torch::comms::ctran::test {
namespace {

class Counts final : public Listener {
 public:
  void on_end(const CommError* error) noexcept override {
    (error == nullptr ? done : failed).fetch_add(1);
  }
  std::atomic<int> done{0}, failed{0};
};

// Other threads tell of ends all the while; several, so that the lock of the list is contended.
TEST(Endings, ACallThatFailsIsToldWithItsErrorWhoeverTellsIt) {
  constexpr int kTellers = 3, kRounds = 400, kCalls = 200;
  LinkTable links(0, 1, transport::random_secret(), {});
  links.learn({links.blob()});
  const auto engine = std::make_shared<Engine>(std::move(links), FamilyOptions{});
  engine->open();
  std::atomic<bool> stops{false};
  std::vector<std::thread> tellers;
  for (int i = 0; i < kTellers; ++i)
    tellers.emplace_back([&] {
      while (!stops.load()) engine->tell_endings();
    });
  Counts counts;
  std::vector<float> mail(1);
  const Message receive(Operation::kReceive, 0, mail, 1);
  for (int round = 0; round < kRounds; ++round) {
    const auto base = engine->propose_streams(0);
    ASSERT_TRUE(engine->claim_streams(base));
    const auto group = std::make_shared<Membership>(engine, "waits", std::vector<int>{0}, base);
    engine->add(group);
    for (int i = 0; i < kCalls; ++i) {
      auto* task = engine->tasks().take_messages();
      task->group = group;
      task->prepare({&receive.call, 1}, 0, 1);
      task->name = receive.call.name;
      task->listener = &counts;
      engine->start(task);
      task->release();
    }
    engine->remove(group);
  }
  stops.store(true);
  for (auto& teller : tellers) teller.join();
  engine->tell_endings();
  engine->shut_down(CommError(Errc::kFinalized, "the test is over"));
  EXPECT_EQ(counts.done.load(), 0);
  EXPECT_EQ(counts.failed.load(), kRounds * kCalls);
}

}  // namespace
}  // namespace torch::comms::ctran::test
