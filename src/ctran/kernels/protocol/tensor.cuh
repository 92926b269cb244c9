#pragma once

#include "ctran/kernels/collectives/reducers.hpp"
#include "ctran/kernels/protocol/device.cuh"
#include "ctran/kernels/protocol/params.hpp"

// Loads and stores user memory, 16 bytes (or 8) at a time where its alignment allows.
namespace torch::comms::ctran::kernels {

template <class T>
__device__ __forceinline__ void move_units(char* to, const char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(T))
    *reinterpret_cast<T*>(to + i) = *reinterpret_cast<const T*>(from + i);
}
static __device__ __noinline__ void copy_units(char* to, const char* from, size_t bytes,
                                               uint32_t unit) {
  if (unit == 8)
    move_units<uint64_t>(to, from, bytes);
  else if (unit == 4)
    move_units<uint32_t>(to, from, bytes);
  else if (unit == 2)
    move_units<uint16_t>(to, from, bytes);
  else
    move_units<uint8_t>(to, from, bytes);
}

// These load and store fewer bytes than a vector, or unaligned ones. They are not inlined, so that
// the common path is little code.
static __device__ __noinline__ Vector16 load_some(const char* from, size_t bytes, uint32_t unit) {
  alignas(16) char some[16] = {};
  copy_units(some, from, bytes, unit);
  return *reinterpret_cast<const Vector16*>(some);
}
static __device__ __noinline__ void store_some(char* to, size_t bytes, uint32_t unit, Vector16 v) {
  alignas(16) char some[16];
  *reinterpret_cast<Vector16*>(some) = v;
  copy_units(to, some, bytes, unit);
}

// Loads `width` (8 or 16) bytes at `from + at`. Only the bytes before `end` exist; the others are
// 0. kWhole: either all of them exist or none.
template <bool kWhole = false>
__device__ __forceinline__ Vector16 load(const CollectiveParams& p, const char* from, size_t at,
                                         size_t end, uint32_t width) {
  if (kWhole ? at < end : p.is_aligned && at + width <= end) return load_whole(from + at, width);
  if (kWhole || at >= end) return {0, 0, 0, 0};
  return load_some(from + at, end - at < width ? end - at : width, p.unit);
}

template <bool kWhole = false>
__device__ __forceinline__ void store(const CollectiveParams& p, char* to, size_t at, size_t end,
                                      uint32_t width, const Vector16& v) {
  if (kWhole ? at < end : p.is_aligned && at + width <= end) {
    store_whole(to + at, v, width);
  } else if (!kWhole && at < end) {
    store_some(to + at, end - at < width ? end - at : width, p.unit, v);
  }
}

}  // namespace torch::comms::ctran::kernels
