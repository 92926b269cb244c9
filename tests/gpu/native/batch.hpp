#pragma once

#include <random>
#include <vector>

#include "cases.hpp"
#include "world.hpp"

namespace native {

// Cases that are enqueued one after the other without waiting, on every rank in the same order.
class Batch {
 public:
  // Draws the inputs and copies them to the ranks; outputs hold a pattern.
  Batch(const World& world, std::vector<Case> cases, std::mt19937_64& random);

  size_t size() const { return cases_.size(); }
  const Case& operator[](size_t i) const { return cases_[i]; }
  void upload() const;
  void launch(int rank) const;
  void launch(size_t i, int rank) const;
  // Whether each case has to be launched on all ranks before the next one is on any. The copies of
  // ranks that share a GPU in one process may be in one queue: those of a case wait for its other
  // ranks, which must not have copies of an earlier one behind them. See World::may_copy().
  bool goes_by_case() const;
  kernels::KernelCall call(size_t i, int rank) const;
  // The memory of all cases is a window.
  kernels::WindowCollectiveCall window_call(size_t i, int rank) const;
  // After the ranks have finished. Throws for the first wrong element, or byte beyond a tensor;
  // a rank that has stopped says so first.
  void check() const;

 private:
  struct Place {
    size_t input = 0, output = 0;  // offsets, of all cases in one memory
    size_t factor = 0;
  };
  struct OfRank {
    DeviceMemory memory;
    Bytes before;  // of the memory
    std::vector<Place> places;
  };

  const World& world_;
  std::vector<Case> cases_;
  std::vector<std::vector<Bytes>> inputs_, factors_;  // by case and rank
  std::vector<OfRank> ranks_;
};

}  // namespace native
