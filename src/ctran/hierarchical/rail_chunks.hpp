#pragma once

#include <cstddef>
#include <vector>

// How a tensor is cut for its way between hosts: pure, and the same on all ranks.
namespace torch::comms::ctran {

// `rails` parts of `part` elements each, one behind the other; rail r carries part r.
struct RailChunk {
  size_t begin;  // element
  size_t part;
  int rails;

  size_t count() const noexcept { return part * static_cast<size_t>(rails); }
  size_t begin_of(int rail) const noexcept { return begin + part * static_cast<size_t>(rail); }
  bool operator==(const RailChunk&) const = default;
};

struct ChunkSizes {
  size_t part_bytes;       // no part is larger; at least one element
  size_t small_bytes = 0;  // tensors up to this go by one rail: fewer launches than parts
};

// So many chunks of one tensor are under way at once; smaller ones than so many bytes a part are
// not made for that.
inline constexpr int kPipelineDepth = 4;
inline constexpr size_t kMinPartBytes = size_t{128} << 10;

// Covers [0, count) once, in order. Parts begin at multiples of 16 bytes of the tensor where the
// element's size divides 16, but for what is left over at the end, which goes by one rail. Nothing
// for count 0.
std::vector<RailChunk> split_into_chunks(size_t count, size_t element_bytes, int rails,
                                         const ChunkSizes& cuts);

// [0, count) in pieces of at most `most`, as equal as can be.
struct StagingSlice {
  size_t begin, count;
};
std::vector<StagingSlice> split_evenly(size_t count, size_t most);

}  // namespace torch::comms::ctran
