#pragma once

#include <cstddef>

#include "ctran/kernels/protocol/device.cuh"

// Loads and stores 16-byte vectors at any address, with vector instructions where the alignment
// allows.
namespace torch::comms::ctran::kernels {

__device__ __forceinline__ uint32_t misaligned(const char* at) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) & 15);
}
__device__ __forceinline__ Vector16 load_aligned(const char* at) {
  return *reinterpret_cast<const Vector16*>(at);
}

// Loads 16 existing bytes from a misaligned address. The two aligned vectors around them lie on the
// same pages, so both may be read.
__device__ __forceinline__ Vector16 load_shifted(const char* at) {
  const uint32_t off = misaligned(at);
  return shifted(load_aligned(at - off), load_aligned(at - off + 16), off);
}
static __device__ __noinline__ Vector16 load_some(const char* at, const char* end) {
  if (at + 16 <= end) return load_shifted(at);
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (at + i < end) words[i / 4] |= uint32_t{static_cast<uint8_t>(at[i])} << (i % 4 * 8);
  return {words[0], words[1], words[2], words[3]};
}
// Loads 16 bytes at `at`. Only the bytes before `end` exist; the others are 0.
__device__ __forceinline__ Vector16 load_bytes(const char* at, const char* end) {
  return misaligned(at) == 0 && at + 16 <= end ? load_aligned(at) : load_some(at, end);
}

// Stores the first `count` bytes of `v`: whole elements of T first, then single bytes.
template <class T>
__device__ __forceinline__ void store_parts(char* to, const Vector16& v, int count) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 16; i += sizeof(T)) {
    const uint32_t part = words[i / 4] >> (i % 4 * 8);
    if (i + static_cast<int>(sizeof(T)) <= count) {
      *reinterpret_cast<T*>(to + i) = static_cast<T>(part);
    } else {
#pragma unroll
      for (int b = 0; b + 1 < static_cast<int>(sizeof(T)); ++b)
        if (i + b < count) to[i + b] = static_cast<char>(part >> (b * 8));
    }
  }
}
static __device__ __noinline__ void store_some(char* to, Vector16 v, int count) {
  const uint32_t off = misaligned(to);
  if (off % 4 == 0)
    store_parts<uint32_t>(to, v, count);
  else if (off % 2 == 0)
    store_parts<uint16_t>(to, v, count);
  else
    store_parts<uint8_t>(to, v, count);
}
// Stores the first `count` bytes of `v` to any address.
__device__ __forceinline__ void store_bytes(char* to, const Vector16& v, int count) {
  if (misaligned(to) == 0 && count == 16)
    *reinterpret_cast<Vector16*>(to) = v;
  else if (misaligned(to) % 8 == 0 && count == 8)
    *reinterpret_cast<uint2*>(to) = uint2{v.x, v.y};
  else
    store_some(to, v, count);
}

// Copies a message chunk between a slot, which is aligned, and memory of any alignment.
// load() reads what is sent before its slot is known to be free; put() then writes the slot.
// copy_from_slot() copies a received chunk. Threads 0 to kThreads - 1 call the methods together.
template <int kThreads, size_t kMost>
class ChunkCopier {
 public:
  static constexpr int kVectors = static_cast<int>(kMost / 16 / kThreads);
  static_assert(kVectors * 16 * kThreads == kMost);

  __device__ __forceinline__ void load(const char* from, uint32_t bytes) {
    bytes_ = bytes;
    if (misaligned(from) == 0) {
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (index(k) < bytes / 16) v_[k] = load_aligned(from + index(k) * 16);
    } else {
      const uint32_t off = misaligned(from);
      Vector16 next[kVectors];
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (index(k) < bytes / 16) {
          v_[k] = load_aligned(from - off + index(k) * 16);
          next[k] = load_aligned(from - off + index(k) * 16 + 16);
        }
#pragma unroll
      for (int k = 0; k < kVectors; ++k) v_[k] = shifted(v_[k], next[k], off);
    }
    if (threadIdx.x < bytes % 16) last_ = from[bytes / 16 * 16 + threadIdx.x];
  }
  __device__ __forceinline__ void put(char* slot) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (index(k) < bytes_ / 16) *reinterpret_cast<Vector16*>(slot + index(k) * 16) = v_[k];
    if (threadIdx.x < bytes_ % 16) slot[bytes_ / 16 * 16 + threadIdx.x] = last_;
  }

  __device__ __forceinline__ static void copy_from_slot(char* to, const char* slot,
                                                        uint32_t bytes) {
    if (misaligned(to) != 0) return take_shifted(to, slot, bytes);
    Vector16 v[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (index(k) < bytes / 16) v[k] = load_volatile(slot + index(k) * 16);
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (index(k) < bytes / 16) *reinterpret_cast<Vector16*>(to + index(k) * 16) = v[k];
    take_bytes(to, slot, bytes / 16 * 16, bytes);
  }

 private:
  __device__ __forceinline__ static uint32_t index(int k) { return k * kThreads + threadIdx.x; }

  // Copies bytes [begin, end), at most one for each thread.
  __device__ __forceinline__ static void take_bytes(char* to, const char* slot, uint32_t begin,
                                                    uint32_t end) {
    const uint32_t at = begin + threadIdx.x;
    if (at < end) to[at] = *const_cast<const volatile char*>(slot + at);
  }
  // Every aligned vector of the destination consists of the end of one slot vector and the
  // beginning of the next one.
  __device__ __forceinline__ static void take_shifted(char* to, const char* slot, uint32_t bytes) {
    constexpr int kSome = 2;
    const uint32_t skip = 16 - misaligned(to);
    if (bytes < skip) return take_bytes(to, slot, 0, bytes);
    take_bytes(to, slot, 0, skip);
    const uint32_t count = (bytes - skip) / 16;
    for (uint32_t first = threadIdx.x; first < count; first += kSome * kThreads) {
      Vector16 low[kSome], high[kSome];
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        const uint32_t i = first + k * kThreads;
        if (i >= count) continue;
        low[k] = load_volatile(slot + i * 16);
        high[k] = load_volatile(slot + i * 16 + 16);
      }
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        const uint32_t i = first + k * kThreads;
        if (i < count)
          *reinterpret_cast<Vector16*>(to + skip + i * 16) = shifted(low[k], high[k], skip);
      }
    }
    take_bytes(to, slot, skip + count * 16, bytes);
  }

  Vector16 v_[kVectors];
  uint32_t bytes_ = 0;
  char last_ = 0;
};

}  // namespace torch::comms::ctran::kernels
