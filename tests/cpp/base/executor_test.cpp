#include "base/concurrency/executor.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <latch>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/no_threads.hpp"

namespace torch::comms::base {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{20'000};

constinit Executor cached(std::chrono::minutes(10));

// On which thread `executor` runs a function. No std::thread::id: that of a thread that has ended
// goes to the next one.
pid_t where(Executor& executor) {
  const auto promise = std::make_shared<std::promise<pid_t>>();
  auto found = promise->get_future();
  executor.run([promise] { promise->set_value(::gettid()); });
  return found.get();
}

constexpr size_t kCalls = 100;
size_t threads_of_calls(Executor& executor) {
  std::set<pid_t> threads;
  for (size_t i = 0; i < kCalls; ++i) threads.insert(where(executor));
  return threads.size();
}

TEST(Executor, AnIdleThreadIsUsedAgain) {
  // A thread may not be back yet when the next function comes.
  EXPECT_LT(threads_of_calls(cached), kCalls);
}

TEST(Executor, WithoutIdleTimeEachFunctionHasANewThread) {
  EXPECT_EQ(threads_of_calls(Executor::unshared()), kCalls);
}

TEST(Executor, EachFunctionHasAThreadOfItsOwn) {
  // None of them ends before the last one has begun.
  constexpr int kFunctions = 8;
  const auto begun = std::make_shared<std::latch>(kFunctions);
  std::vector<std::future<void>> ended;
  for (int i = 0; i < kFunctions; ++i) {
    const auto end = std::make_shared<std::promise<void>>();
    ended.push_back(end->get_future());
    cached.run([begun, end] {
      begun->arrive_and_wait();
      end->set_value();
    });
  }
  for (auto& end : ended) end.get();
}

TEST(Executor, AFunctionIsDestroyedBeforeItsThreadIsIdle) {
  auto owned = std::make_shared<std::promise<void>>();
  auto gone = owned->get_future();
  cached.run([owned = std::move(owned)] {});
  EXPECT_THROW(gone.get(), std::future_error);  // broken by the end of its last owner
}

#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// How many pages a function has to ask the system for that writes to 20 MB and frees them.
long pages_of_a_function(Executor& executor) {
  constexpr size_t kBlocks = 200, kBlock_bytes = 100'000, kPage_bytes = 4096;
  const auto promise = std::make_shared<std::promise<long>>();
  auto counted = promise->get_future();
  executor.run([promise] {
    rusage before{}, after{};
    ::getrusage(RUSAGE_THREAD, &before);
    {
      std::vector<std::unique_ptr<volatile char[]>> blocks(kBlocks);
      for (auto& block : blocks) {
        block.reset(new volatile char[kBlock_bytes]);
        for (size_t at = 0; at < kBlock_bytes; at += kPage_bytes) block[at] = 1;
      }
    }
    ::getrusage(RUSAGE_THREAD, &after);
    promise->set_value(after.ru_minflt - before.ru_minflt);
  });
  return counted.get();
}

TEST(Executor, TheNextFunctionFindsPagesThatTheOneBeforeHasFreed) {
  ::mallopt(M_TRIM_THRESHOLD, 128 << 10);  // whatever other tests have freed before
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  constexpr long kPages = 20'000'000 / 4096;
  static constinit Executor keeping(std::chrono::minutes(10), size_t{24} << 20);
  static constinit Executor usual(std::chrono::minutes(10));
  for (auto* each : {&keeping, &usual}) EXPECT_GT(pages_of_a_function(*each), kPages * 9 / 10);
  // The same thread again; one that is not back yet is not waited for.
  pages_of_a_function(keeping), pages_of_a_function(usual);
  int tries = 0;
  while (pages_of_a_function(keeping) > kPages / 10) ASSERT_LT(++tries, 100);
  EXPECT_GT(pages_of_a_function(usual), kPages / 2);
  ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}
#endif

TEST(Executor, AForkedChildHasThreadsOfItsOwn) {
  where(cached);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(where(cached) > 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#if defined(__GLIBC__)
TEST(Executor, WithoutThreadsRunThrowsAndRunOrInlineRunsOnItsCaller) {
  Executor fresh(std::chrono::minutes(10));
  pid_t thread = 0;
  {
    const NoThreads none;
    EXPECT_THROW(fresh.run([] { ADD_FAILURE(); }), std::system_error);
    fresh.run_or_inline([&thread] { thread = ::gettid(); });
    EXPECT_EQ(thread, ::gettid());
  }
  EXPECT_NE(where(fresh), thread);
}
#endif

constexpr int kWaited = 7, kDidNotWait = 3;

bool is_child = false;
std::atomic<bool> is_run{false};

TaskGroup& group() {
  // Registered before the object, so that it runs when that has gone.
  static const int last = std::atexit([] {
    if (is_child) ::_exit(is_run ? kWaited : kDidNotWait);
  });
  static TaskGroup instance(kLimit);
  EXPECT_EQ(last, 0);
  return instance;
}

TEST(TaskGroup, AFunctionCountsUntilWhatItOwnsIsDestroyed) {
  std::promise<void> run, go;
  struct Owned {
    std::shared_future<void> may_go;
    ~Owned() { may_go.wait(); }
  };
  std::shared_ptr<Owned> owned(new Owned{go.get_future().share()});
  group().run([&run, owned = std::move(owned)] { run.set_value(); });
  run.get_future().wait();
  EXPECT_FALSE(group().wait_for(0, milliseconds(0)));
  EXPECT_TRUE(group().wait_for(1, milliseconds(0)));
  go.set_value();
  EXPECT_TRUE(group().wait_for(0, kLimit));
}

// As the interpreter of Python ends threads.
TEST(TaskGroup, AFunctionThatIsUnwoundCountsNoMore) {
  group().run([] { ::pthread_exit(nullptr); });
  EXPECT_TRUE(group().wait_for(0, kLimit));
}

int go[2];

[[noreturn]] void end_with_a_function() {
  is_child = true;
  if (!group().wait_for(0, milliseconds(0)) || ::pipe(go) != 0) ::_exit(1);
  group().run([] {
    char byte = 0;
    static_cast<void>(::read(go[0], &byte, 1));
    is_run = true;
  });
  // Registered after the object, so that it runs first.
  std::atexit([] { static_cast<void>(::write(go[1], "x", 1)); });
  std::exit(0);
}

TEST(TaskGroup, AForkedChildHasItsOwnCountAndItsEndWaitsForThat) {
  std::promise<void> begun, open;
  group().run([&begun, is_open = open.get_future().share()] {
    begun.set_value();
    is_open.wait();
  });
  // Before it has begun it may hold locks that the child gets as they are, such as a sanitizer's.
  begun.get_future().wait();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) end_with_a_function();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kWaited);
  open.set_value();
  EXPECT_TRUE(group().wait_for(0, kLimit));
}

}  // namespace
}  // namespace torch::comms::base
