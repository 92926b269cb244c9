#include "base/concurrency/kept_threads.hpp"

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace torch::comms::base {
namespace {

KeptThreads& threads() {
  static auto& instance = *new KeptThreads(std::chrono::minutes(10));
  return instance;
}

// On which thread `threads` run a body.
std::thread::id where(KeptThreads& threads) {
  const auto promise = std::make_shared<std::promise<std::thread::id>>();
  auto found = promise->get_future();
  threads.run([promise] { promise->set_value(std::this_thread::get_id()); });
  return found.get();
}

TEST(KeptThreads, WhoeverIsThroughIsUsedAgain) {
  // The first may not be back yet when the next one comes, but it does come back.
  const auto first = where(threads());
  int tries = 0;
  while (where(threads()) != first) ASSERT_LT(++tries, 100'000);
}

TEST(KeptThreads, EachBodyHasAThreadOfItsOwn) {
  // None of them ends before the last one has begun.
  constexpr int kBodies = 8;
  const auto begun = std::make_shared<std::latch>(kBodies);
  std::vector<std::future<void>> ended;
  for (int i = 0; i < kBodies; ++i) {
    const auto end = std::make_shared<std::promise<void>>();
    ended.push_back(end->get_future());
    threads().run([begun, end] {
      begun->arrive_and_wait();
      end->set_value();
    });
  }
  for (auto& end : ended) end.get();
}

TEST(KeptThreads, ABodyIsGoneBeforeItsThreadWaits) {
  auto owned = std::make_shared<std::promise<void>>();
  auto gone = owned->get_future();
  threads().run([owned = std::move(owned)] {});
  EXPECT_THROW(gone.get(), std::future_error);  // broken by the end of its last owner
}

#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// How many pages a body has to ask the system for that writes to 20 MB and frees them.
long pages_of_a_body(KeptThreads& threads) {
  constexpr size_t kBlocks = 200, kBlock_bytes = 100'000, kPage_bytes = 4096;
  const auto promise = std::make_shared<std::promise<long>>();
  auto counted = promise->get_future();
  threads.run([promise] {
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

TEST(KeptThreads, WhatABodyFreesTheNextOneFindsTouched) {
  ::mallopt(M_TRIM_THRESHOLD, 128 << 10);  // whatever other tests have freed before
  ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  constexpr long kPages = 20'000'000 / 4096;
  static auto& keeping = *new KeptThreads(std::chrono::minutes(10), size_t{24} << 20);
  static auto& usual = *new KeptThreads(std::chrono::minutes(10));
  for (auto* threads : {&keeping, &usual}) EXPECT_GT(pages_of_a_body(*threads), kPages * 9 / 10);
  // The same thread again; one that is not back yet is not waited for.
  pages_of_a_body(keeping), pages_of_a_body(usual);
  int tries = 0;
  while (pages_of_a_body(keeping) > kPages / 10) ASSERT_LT(++tries, 100);
  EXPECT_GT(pages_of_a_body(usual), kPages / 2);
  ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}
#endif

TEST(KeptThreads, AForkedChildHasItsOwn) {
  where(threads());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(where(threads()) == std::thread::id() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace torch::comms::base
