#include "ctran/hierarchical/rail_chunks.hpp"

#include <algorithm>

namespace torch::comms::ctran {
namespace {

constexpr size_t kAlignment = 16;

size_t quotient_up(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<RailChunk> split_into_chunks(size_t count, size_t element_bytes, int rails,
                                         const ChunkSizes& sizes) {
  std::vector<RailChunk> chunks;
  if (count * element_bytes <= sizes.small_bytes) rails = 1;
  const auto all = static_cast<size_t>(rails);
  const size_t unit = kAlignment % element_bytes == 0 ? kAlignment / element_bytes : 1;
  const size_t most = std::max(sizes.part_bytes / element_bytes / unit * unit, unit);
  const size_t least =
      std::min(std::max(kMinPartBytes / element_bytes / unit, size_t{1}) * unit, most);
  // The elements per rail in whole units, in parts that fill the pipeline unless they would be
  // smaller than kMinPartBytes.
  const size_t of_rail = count / all / unit * unit;
  const size_t wanted = quotient_up(quotient_up(of_rail, unit), kPipelineDepth) * unit;
  const size_t part = std::clamp(wanted, least, most);
  size_t begin = 0;
  for (size_t at = 0; at < of_rail; at += part) {
    chunks.push_back({begin, std::min(part, of_rail - at), rails});
    begin += chunks.back().count();
  }
  while (begin < count) {
    chunks.push_back({begin, std::min(most, count - begin), 1});
    begin += chunks.back().count();
  }
  return chunks;
}

std::vector<StagingSlice> split_evenly(size_t count, size_t most) {
  std::vector<StagingSlice> pieces;
  const size_t parts = quotient_up(count, std::max(most, size_t{1}));
  for (size_t i = 0; i < parts; ++i) {
    const size_t begin = count / parts * i + std::min(i, count % parts);
    pieces.push_back({begin, count / parts + (i < count % parts ? 1 : 0)});
  }
  return pieces;
}

}  // namespace torch::comms::ctran
