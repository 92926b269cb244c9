#include "base/os/streaming_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace torch::comms::base {
namespace {

#if defined(__SSE2__)
constexpr size_t kLine = 64;

// Copies whole cache lines: `into` and `bytes` are multiples of kLine.
void stream(std::byte* into, const std::byte* from, size_t bytes) noexcept {
  constexpr size_t kWord = sizeof(__m128i), kWords = kLine / kWord;
  for (const auto* end = from + bytes; from != end; from += kLine, into += kLine) {
    __m128i words[kWords];
    for (size_t i = 0; i < kWords; ++i)
      words[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * kWord));
    for (size_t i = 0; i < kWords; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(into + i * kWord), words[i]);
  }
  _mm_sfence();
}
#endif

}  // namespace

void copy_bytes(void* into, const void* from, size_t bytes, bool past_caches) noexcept {
  if (into == from || bytes == 0) return;
#if defined(__SSE2__)
  if (past_caches) {
    auto* to = static_cast<std::byte*>(into);
    const auto* at = static_cast<const std::byte*>(from);
    const size_t lead = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
    const size_t lines = (bytes - lead) / kLine * kLine;
    std::memcpy(to, at, lead);
    stream(to + lead, at + lead, lines);
    std::memcpy(to + lead + lines, at + lead + lines, bytes - lead - lines);
    return;
  }
#else
  static_cast<void>(past_caches);
#endif
  std::memcpy(into, from, bytes);
}

}  // namespace torch::comms::base
