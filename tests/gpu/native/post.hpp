#pragma once

#include <random>
#include <vector>

#include "cases.hpp"
#include "world.hpp"

namespace native {

// A message, and where it lies in the memory of either rank.
struct MessageSpec {
  int from, to;
  size_t bytes;
  size_t shift_from = 0, shift_to = 0;  // off an alignment of 16 bytes
  // Whether the sender requests zero-copy, and the receiver offers its address.
  bool requests_zero_copy = false, offers_target = false;
};

// Messages in launches that are enqueued one after the other, without waiting.
class MessageSequence {
 public:
  using Launch = std::vector<MessageSpec>;

  // Draws the data and copies them to the ranks; what is received is held against them.
  MessageSequence(const World& world, std::vector<Launch> launches, std::mt19937_64& random);

  size_t launches() const { return launches_.size(); }
  size_t message_count() const;
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
