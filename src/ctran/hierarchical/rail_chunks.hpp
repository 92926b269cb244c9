#pragma once

#include <cstddef>
#include <vector>

// How a tensor is split for its transfer between hosts: pure functions with the same result on all
// ranks.
namespace torch::comms::ctran {

// A chunk of a tensor: `rails` consecutive parts of `part` elements each. Rail r carries part r.
struct RailChunk {
  size_t begin;  // in elements
  size_t part;
  int rails;

  size_t count() const noexcept { return part * static_cast<size_t>(rails); }
  size_t begin_of(int rail) const noexcept { return begin + part * static_cast<size_t>(rail); }
  bool operator==(const RailChunk&) const = default;
};

struct ChunkSizes {
  size_t part_bytes;       // maximum size of a part, but at least one element
  size_t small_bytes = 0;  // tensors up to this size use one rail: fewer launches
};

// kPipelineDepth: chunks of one tensor in flight at once. Parts are not made smaller than
// kMinPartBytes to fill the pipeline.
inline constexpr int kPipelineDepth = 4;
inline constexpr size_t kMinPartBytes = size_t{128} << 10;

// Splits [0, count) into chunks, in order. Parts begin at multiples of 16 bytes if the element size
// divides 16. The remainder at the end uses one rail. Returns nothing for count 0.
std::vector<RailChunk> split_into_chunks(size_t count, size_t element_bytes, int rails,
                                         const ChunkSizes& sizes);

// A piece of [0, count). split_evenly() returns pieces of at most `most`, as equal as possible.
struct StagingSlice {
  size_t begin, count;
};
std::vector<StagingSlice> split_evenly(size_t count, size_t most);

}  // namespace torch::comms::ctran
