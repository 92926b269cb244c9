#pragma once

#include "ctran/kernels/messages/messages.hpp"
#include "ctran/kernels/protocol/portable.hpp"

// An exchange whose sizes are in device memory: what the host says of it, and how the counts are
// read.
namespace torch::comms::ctran::kernels {

// One of the tensors.
struct DeviceCountedBuffer {
  char* data;
  const int64_t* counts;  // of elements, by rank
  size_t elements;        // that exist
};

// Where a rank's part is, by the counts, in elements; `fits`: whether all of them are possible.
struct DeviceCountedPart {
  size_t begin, count;
  bool is_possible;
};
TC_BOTH DeviceCountedPart part_of(const DeviceCountedBuffer& tensor, int ranks, int rank) {
  DeviceCountedPart part{0, 0, true};
  size_t left = tensor.elements;
  TC_UNROLL
  for (int r = 0; r < kMaxRanks; ++r) {
    if (r >= ranks) continue;
    const int64_t count = tensor.counts[r];
    // Negative ones are too large as well.
    const bool fits = static_cast<uint64_t>(count) <= left;
    if (r == rank) part.begin = tensor.elements - left, part.count = static_cast<size_t>(count);
    part.is_possible = part.is_possible && fits;
    if (fits) left -= static_cast<size_t>(count);
  }
  return part;
}

// What the kernel is given. Of its blocks, those after the routes' copy what a rank has for itself.
struct AllToAllVDynamicParams : MessageParams {
  DeviceCountedBuffer input, output;
  size_t element_bytes;
  int32_t local_copy_blocks;
  bool requests_zero_copy;
  char* zero_copy_targets[kMaxRanks];
};

// Whether the call makes sense on this rank, but for its counts.
constexpr bool is_valid(const TeamDescriptor& team, const AllToAllVDynamic& exchange) {
  return team.size >= 2 && team.size <= kMaxRanks && exchange.blocks >= 0 &&
         exchange.element_bytes >= 1 && exchange.input_counts != nullptr &&
         exchange.output_counts != nullptr &&
         (exchange.input != nullptr || exchange.input_elements == 0) &&
         (exchange.output != nullptr || exchange.output_elements == 0);
}

// Of an exchange that is sound. `most_blocks`: as for messages, and one more.
AllToAllVDynamicParams params_of(const TeamDescriptor& team, const AllToAllVDynamic& exchange,
                                 int most_blocks);

}  // namespace torch::comms::ctran::kernels
