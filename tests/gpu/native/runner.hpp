#pragma once

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "suites.hpp"

namespace native {

inline kernels::KernelCall plain(const Case& c) {
  kernels::KernelCall call{};
  call.collective = c.collective, call.algorithm = c.algorithm, call.dtype = c.dtype;
  call.op = c.op, call.root = c.root, call.blocks = c.blocks, call.count = c.count;
  return call;
}

// Collects cases, and runs them a few at a time on one world.
class Runner {
 public:
  Runner(const kernels::KernelFunctionTable& library, const Settings& settings, int ranks,
         size_t most_in_batch = 24)
      : world_(library, ranks, settings.first_launch),
        random_(settings.seed * 1000 + static_cast<uint64_t>(ranks)),
        most_(most_in_batch) {}

  const World& world() const { return world_; }
  std::mt19937_64& random() { return random_; }
  size_t done() const { return done_; }

  // Ranks that share a GPU must all be on it at once.
  int blocks() {
    constexpr int kShared[] = {1, 2, 4, 8}, kOwn[] = {1, 7, 16, 64};
    return world_.shares_gpus() ? kShared[random_() % 4] : kOwn[random_() % 4];
  }
  void add(const Case& c) {
    if (!world_.library().can_launch(world_.size(), plain(c))) return;
    cases_.push_back(c);
    if (cases_.size() == most_) flush();
  }
  void flush() {
    if (cases_.empty()) return;
    const Batch batch(world_, std::move(cases_), random_);
    cases_.clear();
    // Ranks begin in any order; sometimes one is late, in the middle of the others' waiting.
    std::vector<int> order(static_cast<size_t>(world_.size()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::ranges::shuffle(order, random_);
    const bool straggles = random_() % 8 == 0;
    if (batch.goes_by_case()) {
      for (size_t i = 0; i < batch.size(); ++i)
        for (const int rank : order) batch.launch(i, rank);
    } else {
      for (const int rank : order) {
        if (straggles && rank == order.back()) wait_a_little();
        batch.launch(rank);
      }
    }
    world_.synchronize();
    batch.check();
    done_ += batch.size();
  }

 private:
  static void wait_a_little() {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(3)) {
    }
  }

  World world_;
  std::mt19937_64 random_;
  size_t most_;
  std::vector<Case> cases_;
  size_t done_ = 0;
};

}  // namespace native
