#include "ctran/arithmetic/copy.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/last_cache.hpp"
#include "ctran/arithmetic/kernel.hpp"

namespace torch::comms::ctran {
namespace {

size_t cached() noexcept {
  constexpr size_t kMost = size_t{64} << 20;
  const size_t bytes = base::last_cache().bytes;
  return bytes > 0 ? std::min(kMost, bytes) : kMost;
}

std::atomic<size_t> g_sharers{1};  // of a last cache

}  // namespace

bool is_streamed(size_t bytes) noexcept {
  static const size_t from = cached();
  return bytes >= from;
}

void share_last_cache(int ranks, int cores) noexcept {
  const int64_t sharers = int64_t{ranks} * base::last_cache().cores / std::max(1, cores);
  g_sharers.store(static_cast<size_t>(std::max<int64_t>(1, sharers)), std::memory_order_relaxed);
}

bool is_copy_streamed(size_t bytes) noexcept {
  return is_streamed(2 * bytes * g_sharers.load(std::memory_order_relaxed));
}

void copy_bytes(void* into, const void* from, size_t bytes) noexcept {
  if (into == from || bytes == 0) return;
  if (!is_copy_streamed(bytes)) {
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
