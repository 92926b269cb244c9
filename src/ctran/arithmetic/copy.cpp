#include "ctran/arithmetic/copy.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ctran/arithmetic/kernel.hpp"

namespace torch::comms::ctran {
namespace {

size_t stream_from() {
  constexpr size_t kMost = size_t{64} << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long last_cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (last_cache > 0) return std::min(kMost, static_cast<size_t>(last_cache));
#endif
  return kMost;
}

}  // namespace

bool is_streamed(size_t bytes) noexcept {
  static const size_t from = stream_from();
  return bytes >= from;
}

void copy_bytes(void* into, const void* from, size_t bytes) noexcept {
  if (into == from || bytes == 0) return;
  if (!is_streamed(2 * bytes)) {
    std::memcpy(into, from, bytes);
    return;
  }
  // "and" of a single operand.
  static const Kernel loop =
      kernels_of(best_level())
          .reduce[static_cast<size_t>(Dtype::kUInt8)][static_cast<size_t>(ReduceOp::kBitAnd)];
  const auto* source = static_cast<const std::byte*>(from);
  LoopWork work{.into = static_cast<std::byte*>(into), .sources = &source, .operands = 1};
  launch(loop, work, bytes, 1, 1);
}

}  // namespace torch::comms::ctran
