#include <torchcomms/work.hpp>

#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torchcomms/base/error.hpp>

#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

// A work whose transitions the test makes.
class SteppedWork : public TorchWork {
 public:
  void wait() override {
    runWaitPreHooks();
    waitForTerminal(std::chrono::milliseconds::max());
    runWaitPostHooks();
    rethrowIfFailed();
  }
  using TorchWork::markCompleted;
  bool move(WorkStatus to, std::exception_ptr error = nullptr) { return setStatus(to, error); }
};

TEST(WorkStates, TerminalStatesAbsorb) {
  for (const auto end : {WorkStatus::COMPLETED, WorkStatus::TIMEDOUT, WorkStatus::ERROR}) {
    const auto work = c10::make_intrusive<SteppedWork>();
    EXPECT_TRUE(work->move(end));
    for (const auto later : {WorkStatus::INPROGRESS, WorkStatus::COMPLETED, WorkStatus::ERROR})
      EXPECT_FALSE(work->move(later));
    EXPECT_EQ(work->status(), end);
  }
}

TEST(WorkStates, AFutureHasTheTensorsOrTheErrorOfItsWork) {
  const auto future = [] {
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  };
  const auto work = c10::make_intrusive<SteppedWork>();
  const auto well = future();
  const auto tensor = at::ones({2});
  work->markCompleted(well, {tensor});
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(well->value().toTensorVector().at(0).is_same(tensor));

  const auto late = c10::make_intrusive<SteppedWork>();
  late->move(WorkStatus::TIMEDOUT,
             std::make_exception_ptr(CommError(Errc::kTimeout, "limit passed")));
  const auto failed = future();
  late->markCompleted(failed, {tensor});
  EXPECT_EQ(late->status(), WorkStatus::TIMEDOUT);
  EXPECT_TRUE(failed->hasError());
}

TEST(WorkStates, ALateCompletionDoesNotHideATimeout) {
  const auto work = c10::make_intrusive<SteppedWork>();
  work->move(WorkStatus::INPROGRESS);
  work->move(WorkStatus::TIMEDOUT,
             std::make_exception_ptr(CommError(Errc::kTimeout, "limit passed")));
  EXPECT_FALSE(work->move(WorkStatus::COMPLETED));
  EXPECT_FALSE(work->isCompleted());
  EXPECT_THROW(work->wait(), CommError);
}

TEST(WorkStates, EveryWaitRaisesTheSameError) {
  const auto work = c10::make_intrusive<SteppedWork>();
  work->move(WorkStatus::ERROR, std::make_exception_ptr(CommError(Errc::kPeerFailed, "gone")));
  for (int i = 0; i < 3; ++i) {
    try {
      work->wait();
      FAIL() << "wait() must throw";
    } catch (const CommError& error) {
      EXPECT_EQ(error.code(), Errc::kPeerFailed);
    }
  }
}

TEST(WorkHooks, RunInOrderOfRegistrationOnTheirTransition) {
  const auto work = c10::make_intrusive<SteppedWork>();
  std::string order;
  work->registerWorkStartHook([&] { order += "s1 "; });
  work->registerWorkStartHook([&] { order += "s2 "; });
  work->registerWorkEndHook([&] { order += "e1 "; });
  work->move(WorkStatus::INPROGRESS);
  EXPECT_EQ(order, "s1 s2 ");
  work->move(WorkStatus::COMPLETED);
  work->move(WorkStatus::ERROR);
  EXPECT_EQ(order, "s1 s2 e1 ") << "an end hook runs once";
}

TEST(WorkHooks, OneThatFailsKeepsNeitherOthersNorWaiters) {
  const auto work = c10::make_intrusive<SteppedWork>();
  int calls = 0;
  for (int i = 0; i < 2; ++i) {
    work->registerWorkStartHook([&] { ++calls, throw std::runtime_error("a hook's own"); });
    work->registerWorkEndHook([&] { ++calls, throw std::runtime_error("a hook's own"); });
  }
  work->move(WorkStatus::INPROGRESS);
  work->move(WorkStatus::COMPLETED);
  work->wait();
  EXPECT_EQ(calls, 4);
}

TEST(WorkHooks, RunAtOnceWhenTheTransitionIsPast) {
  const auto work = c10::make_intrusive<SteppedWork>();
  work->move(WorkStatus::COMPLETED);
  int calls = 0;
  work->registerWorkStartHook([&] { ++calls; });
  work->registerWorkEndHook([&] { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(WorkHooks, WaitHooksRunAtEveryWait) {
  const auto work = c10::make_intrusive<SteppedWork>();
  work->move(WorkStatus::COMPLETED);
  std::string order;
  work->registerWorkWaitPreHook([&] { order += "<"; });
  work->registerWorkWaitPostHook([&] { order += ">"; });
  work->wait();
  work->wait();
  EXPECT_EQ(order, "<><>");
}

TEST(WorkHooks, AFailureIsMetByWaitsAndByWhoHandsItOn) {
  const auto work = c10::make_intrusive<SteppedWork>();
  int met = 0;
  work->meetFailure();
  work->registerWorkMetHook([&] { ++met; });
  EXPECT_EQ(met, 0) << "there was no failure";
  work->move(WorkStatus::ERROR, std::make_exception_ptr(CommError(Errc::kPeerFailed, "gone")));
  EXPECT_THROW(work->wait(), CommError);
  EXPECT_EQ(met, 1);
  work->meetFailure();
  EXPECT_EQ(met, 2);
  work->registerWorkMetHook([&] { ++met; });
  EXPECT_EQ(met, 3) << "at once, as it has been met";
}

TEST(WorkHooks, AFinishedWorkLetsGoOfItsHooks) {
  const auto held = std::make_shared<int>(1);
  const auto work = c10::make_intrusive<SteppedWork>();
  work->registerWorkStartHook([held] {});
  work->registerWorkEndHook([held] {});
  work->move(WorkStatus::COMPLETED);
  EXPECT_EQ(held.use_count(), 1);
}

// Writes what it is told into `order`.
struct Noting final : WorkObserver {
  explicit Noting(std::string& order) : order(order) {}
  void started(TorchWork& work) noexcept override {
    order += work.status() == WorkStatus::NOT_STARTED ? "too early " : "started ";
  }
  void ended(TorchWork& work) noexcept override {
    order += isTerminal(work.status()) ? "ended " : "too early ";
  }
  std::string& order;
};

TEST(WorkObservers, AreToldBeforeTheHooks) {
  std::string order;
  const auto work = c10::make_intrusive<SteppedWork>();
  work->registerWorkStartHook([&] { order += "s "; });
  work->registerWorkEndHook([&] { order += "e "; });
  work->observe(std::make_unique<Noting>(order));
  work->move(WorkStatus::INPROGRESS);
  EXPECT_EQ(order, "started s ");
  work->move(WorkStatus::COMPLETED);
  work->move(WorkStatus::ERROR);
  EXPECT_EQ(order, "started s ended e ");
}

TEST(WorkObservers, OfAWorkThatFailsInItsQueueSeeBoth) {
  std::string order;
  const auto work = c10::make_intrusive<SteppedWork>();
  work->observe(std::make_unique<Noting>(order));
  work->move(WorkStatus::ERROR, std::make_exception_ptr(CommError(Errc::kPeerFailed, "gone")));
  EXPECT_EQ(order, "started ended ");
}

TEST(WorkObservers, MayBeSeveral) {
  std::string first, second;
  const auto work = c10::make_intrusive<SteppedWork>();
  work->observe(std::make_unique<Noting>(first));
  work->observe(std::make_unique<Noting>(second));
  work->move(WorkStatus::INPROGRESS);
  work->move(WorkStatus::COMPLETED);
  EXPECT_EQ(first, "started ended ");
  EXPECT_EQ(second, "ended ");
}

TEST(WorkObservers, SeeWhatIsLeftOfAWorkThatIsUnderWayOrHasEnded) {
  std::string order;
  const auto running = c10::make_intrusive<SteppedWork>();
  running->move(WorkStatus::INPROGRESS);
  running->observe(std::make_unique<Noting>(order));
  EXPECT_EQ(order, "");
  running->move(WorkStatus::COMPLETED);
  const auto ended = c10::make_intrusive<SteppedWork>();
  ended->move(WorkStatus::COMPLETED);
  ended->observe(std::make_unique<Noting>(order));
  EXPECT_EQ(order, "ended ended ");
}

TEST(WorkWaits, TheHostLanguageEndsOneThatHasNoLimit) {
  const auto work = c10::make_intrusive<SteppedWork>();
  set_interrupt_check([] { throw std::runtime_error("Ctrl-C"); });
  EXPECT_THROW(work->wait(), std::runtime_error);
  set_interrupt_check({});
  EXPECT_FALSE(isTerminal(work->status())) << "the operation goes on";
  work->move(WorkStatus::COMPLETED);
  work->wait();
}

TEST(WorkStates, AForkedChildDoesNotWaitForAWorkOfItsParent) {
  const auto open = c10::make_intrusive<SteppedWork>();
  const auto ended = c10::make_intrusive<SteppedWork>();
  ended->move(WorkStatus::COMPLETED);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // it ends a child that waits
    int result = 1;
    try {
      ended->wait();
      open->wait();
    } catch (const CommError& error) {
      result = error.code() == Errc::kForked && ended->isCompleted() ? 0 : 2;
    }
    ::_exit(result);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(WorkThread, CarriesTheBodysExceptionToWait) {
  const auto work = c10::make_intrusive<TorchWorkThread>([] { throw std::runtime_error("body"); });
  EXPECT_THROW(work->wait(), std::runtime_error);
  EXPECT_EQ(work->status(), WorkStatus::ERROR);
}

TEST(WorkThread, RunsTheBodyAndCompletes) {
  int ran = 0;
  const auto work = c10::make_intrusive<TorchWorkThread>([&] { ran = 1; });
  work->waitBlocking();
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(work->isCompleted());
}

TEST(WorkThread, DroppingItWaitsForTheBody) {
  std::atomic<int> ran{0};
  {
    const auto work = c10::make_intrusive<TorchWorkThread>([&] { ran = 1; });
  }
  EXPECT_EQ(ran.load(), 1);
}

TEST(WorkDefaults, BlockingWaitIsRefusedByName) {
  const auto work = c10::make_intrusive<SteppedWork>();
  try {
    work->waitBlocking();
    FAIL();
  } catch (const CommError& error) {
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("waitBlocking not implemented"), std::string::npos);
  }
}

}  // namespace
}  // namespace torch::comms
