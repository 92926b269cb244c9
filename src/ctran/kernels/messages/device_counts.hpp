#pragma once

#include "ctran/kernels/messages/messages.hpp"
#include "ctran/kernels/protocol/portable.hpp"

// Prepares the launch of an exchange whose sizes are in device memory, and reads the counts.
namespace torch::comms::ctran::kernels {

// One of the two tensors.
struct DeviceCountedBuffer {
  char* data;
  const int64_t* counts;  // of elements, by rank
  size_t elements;        // of the whole tensor
};

// Where a rank's part is, in elements. `is_possible`: whether all counts are valid.
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
    // A negative count is too large as well.
    const bool fits = static_cast<uint64_t>(count) <= left;
    if (r == rank) part.begin = tensor.elements - left, part.count = static_cast<size_t>(count);
    part.is_possible = part.is_possible && fits;
    if (fits) left -= static_cast<size_t>(count);
  }
  return part;
}

// Parameters of the kernel. Its last local_copy_blocks blocks copy this rank's part for itself.
struct AllToAllVDynamicParams : MessageParams {
  DeviceCountedBuffer input, output;
  size_t element_bytes;
  int32_t local_copy_blocks;
  bool requests_zero_copy;
  char* zero_copy_targets[kMaxRanks];
};

// Whether the call makes sense on this rank, apart from its counts.
constexpr bool is_valid(const TeamDescriptor& team, const AllToAllVDynamic& exchange) {
  return team.size >= 2 && team.size <= kMaxRanks && exchange.blocks >= 0 &&
         exchange.element_bytes >= 1 && exchange.input_counts != nullptr &&
         exchange.output_counts != nullptr &&
         (exchange.input != nullptr || exchange.input_elements == 0) &&
         (exchange.output != nullptr || exchange.output_elements == 0);
}

// Returns the parameters of a valid exchange. `most_blocks`: blocks that are on the GPU at once, at
// least one for each route and one for the copy.
AllToAllVDynamicParams params_of(const TeamDescriptor& team, const AllToAllVDynamic& exchange,
                                 int most_blocks);

}  // namespace torch::comms::ctran::kernels
