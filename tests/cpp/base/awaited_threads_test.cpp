#include "base/awaited_threads.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>

namespace torch::comms::base {
namespace {

using std::chrono::milliseconds;

TEST(AwaitedThreads, AreCountedUntilWhatTheyOwnIsGone) {
  AwaitedThreads threads(milliseconds(0));
  std::promise<void> run, go;
  struct Owned {
    std::shared_future<void> may_go;
    ~Owned() { may_go.wait(); }
  };
  const auto may_go = go.get_future().share();
  auto owned = std::make_shared<Owned>(may_go);
  threads.run([&run, owned = std::move(owned)] { run.set_value(); });
  run.get_future().wait();
  EXPECT_FALSE(threads.wait_for(0, milliseconds(0)));
  EXPECT_TRUE(threads.wait_for(1, milliseconds(0)));
  go.set_value();
  EXPECT_TRUE(threads.wait_for(0, milliseconds(20'000)));
}

TEST(AwaitedThreads, TheEndWaitsForThem) {
  std::promise<void> go;
  bool done = false;
  {
    AwaitedThreads threads(milliseconds(20'000));
    threads.run([&done, may_go = go.get_future().share()] {
      may_go.wait();
      done = true;
    });
    go.set_value();
  }
  EXPECT_TRUE(done);
}

TEST(AwaitedThreads, TheEndWaitsNoLongerThanItsPatience) {
  auto go = std::make_shared<std::promise<void>>();
  {
    AwaitedThreads threads(milliseconds(1));
    threads.run([go, may_go = go->get_future().share()] { may_go.wait(); });
  }
  go->set_value();
}

}  // namespace
}  // namespace torch::comms::base
