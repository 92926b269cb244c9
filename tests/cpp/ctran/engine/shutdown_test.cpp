#include <semaphore>

#include "ctran/engine/world.hpp"

// Calls that come as the links of their context are closed.
namespace torch::comms::ctran::test {
namespace {

const int kAlone[] = {0};

class CountingListener final : public CompletionListener {
 public:
  void on_complete(const CommError* /*error*/) noexcept override { ends_.release(); }
  bool wait_for_completion() { return ends_.try_acquire_for(kLong); }

 private:
  std::counting_semaphore<> ends_{0};
};

TEST(Closing, ASplitOfAGroupWhoseLinksAreClosedEndsWithThat) {
  run({.size = 1}, [](Rank& self) {
    self.group->link_context()->shut_down();
    const auto error = error_of([&] { self.group->split(kAlone, "late"); });
    EXPECT_EQ(error.code(), Errc::kFinalized) << error.what();
  });
}

TEST(Closing, TheReasonIsTheErrorOfWhatIsInFlightAndOfWhatFollows) {
  run({.size = 1}, [](Rank& self) {
    std::vector<float> payload(1);
    Message receive(Operation::kReceive, 0, payload, 1);
    auto work = self.group->start(receive.call);
    self.group->link_context()->break_off(
        CommError(Errc::kStaleGeneration, "others are members now"));
    for (const auto& call : {std::function([&] { work.wait(); }),
                             std::function([&] { self.group->run(barrier(1)); })}) {
      const auto error = error_of(call);
      EXPECT_EQ(error.code(), Errc::kStaleGeneration) << error.what();
      EXPECT_EQ(error.why(), "others are members now");
    }
  });
}

// As of a split whose members have just agreed.
TEST(Closing, AGroupThatIsMadeWhenTheLinksAreClosedHasFailed) {
  run({.size = 1}, [](Rank& self) {
    self.group->link_context()->shut_down();
    const auto late = EngineGroup::world(self.group->link_context(), "late");
    for (const auto& call : {std::function([&] { late->run(barrier(1)); }),
                             std::function([&] { late->split(kAlone, "later"); })})
      EXPECT_EQ(error_of(call).code(), Errc::kFinalized);
  });
}

TEST(Closing, EveryCallThatAnotherThreadMakesMeanwhileEnds) {
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round)
    run({.size = 1}, [&](Rank& self) {
      CountingListener listener;
      int started = 0;
      std::binary_semaphore goes_on{0};
      std::thread other([&] {
        const auto error = error_of([&] {
          for (;; ++started) {
            self.group->start(barrier(1), &listener);
            if (started == round % 7) goes_on.release();
            if (round % 2 == 0) self.group->split(kAlone, "half");
          }
        });
        EXPECT_EQ(error.code(), Errc::kFinalized) << error.what();
      });
      goes_on.acquire();
      self.group->link_context()->shut_down();
      other.join();
      for (; started > 0; --started)
        ASSERT_TRUE(listener.wait_for_completion()) << "round " << round;
    });
}

}  // namespace
}  // namespace torch::comms::ctran::test
