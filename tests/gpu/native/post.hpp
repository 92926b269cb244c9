#pragma once

#include <random>
#include <vector>

#include "cases.hpp"
#include "world.hpp"

namespace native {

// A message, and where it lies in the memory of either rank.
struct Letter {
  int from, to;
  size_t bytes;
  size_t shift_from = 0, shift_to = 0;  // off an alignment of 16 bytes
  // Whether it is written straight to its place, where both like it.
  bool asks = false, has_place = false;
};

// Messages in launches that are enqueued one after the other, without waiting.
class Post {
 public:
  using Launch = std::vector<Letter>;

  // Draws the data and copies them to the ranks; what is received is held against them.
  Post(const World& world, std::vector<Launch> launches, std::mt19937_64& random);

  size_t launches() const { return launches_.size(); }
  size_t letters() const;
  void upload() const;
  // The i-th launch, or its messages one in a launch.
  void launch(int rank, size_t i, int blocks, uint64_t limit_ns = 4'000'000'000) const;
  void launch_single(int rank, size_t i, int blocks) const;
  // After the ranks have finished. Throws for the first wrong byte, also beyond the messages; a
  // rank that has stopped says so first.
  void check() const;

 private:
  struct Place {
    size_t from, to;
  };
  std::vector<kernels::KernelMessage> messages(int rank, size_t i) const;

  const World& world_;
  std::vector<Launch> launches_;
  std::vector<std::vector<Place>> places_;
  std::vector<Bytes> before_, after_;  // of the ranks' memory
  std::vector<DeviceMemory> memory_;
};

}  // namespace native
