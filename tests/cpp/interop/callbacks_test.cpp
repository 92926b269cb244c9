#include "interop/callbacks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kLimit{20};

TEST(Callbacks, OneMayWaitForAnother) {
  std::promise<void> first, second;
  run_callback([&] {
    first.get_future().wait();
    second.set_value();
  });
  run_callback([&] { first.set_value(); });
  EXPECT_EQ(second.get_future().wait_for(kLimit), std::future_status::ready);
}

TEST(Callbacks, AnErrorIsNotTheNextOnes) {
  std::promise<void> done;
  run_callback([] { throw std::runtime_error("a test's"); });
  run_callback([&] { done.set_value(); });
  EXPECT_EQ(done.get_future().wait_for(kLimit), std::future_status::ready);
}

// As Python's end does to those that would want its lock.
TEST(Callbacks, ACheckBeforeThemMayKeepThemBack) {
  static std::promise<void> open;
  // Shared: a callback of the test before may only begin now, and waits as well.
  static const auto is_open = open.get_future().share();
  set_callback_check([] { is_open.wait(); });
  std::promise<void> done;
  auto ended = done.get_future();
  run_callback([&] { done.set_value(); });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds::zero()), std::future_status::timeout);
  open.set_value();
  EXPECT_EQ(ended.wait_for(kLimit), std::future_status::ready);
  set_callback_check(nullptr);
}

// As a work of a Python backend does, whose end takes Python's lock while others that have it run
// callbacks: they waited for each other.
TEST(Callbacks, WhatOneHoldsMayRunOthersAtItsEnd) {
  auto done = std::make_shared<std::promise<void>>();
  auto ended = done->get_future();
  struct RunsAnother {
    std::shared_ptr<std::promise<void>> done;
    ~RunsAnother() {
      run_callback([told = done] { told->set_value(); });
    }
  };
  run_callback([held = std::make_shared<RunsAnother>(done)] {});
  EXPECT_EQ(ended.wait_for(kLimit), std::future_status::ready);
}

}  // namespace
}  // namespace torch::comms
