#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/kernels/protocol/vector.hpp"

// Loads, stores and fences for memory that other GPUs and the host access, and other instructions
// that only a GPU has.
namespace torch::comms::ctran::kernels {

// Loads `width` (8 or 16) bytes from a multiple of `width`.
__device__ __forceinline__ Vector16 load_whole(const char* from, size_t width) {
  if (width == 16) return *reinterpret_cast<const Vector16*>(from);
  const uint2 half = *reinterpret_cast<const uint2*>(from);
  return {half.x, half.y, 0, 0};
}
__device__ __forceinline__ void store_whole(char* to, const Vector16& v, size_t width) {
  if (width == 16)
    *reinterpret_cast<Vector16*>(to) = v;
  else
    *reinterpret_cast<uint2*>(to) = uint2{v.x, v.y};
}

__device__ __forceinline__ Vector16 load_volatile(const char* from) {
  Vector16 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_volatile(char* to, const Vector16& v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* from) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
// Loads a value. What its writer did before the matching release is visible afterwards.
__device__ __forceinline__ uint64_t load_acquire(const uint64_t* from) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}
// Makes all earlier writes visible to a reader that acquires a value which is stored after this.
__device__ __forceinline__ void fence_release() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// Orders accesses among the threads of a block, which exchange words by store_shared() and
// load_shared().
__device__ __forceinline__ void fence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
__device__ __forceinline__ uint32_t load_shared(const uint32_t& at) {
  return *const_cast<const volatile uint32_t*>(&at);
}
__device__ __forceinline__ void store_shared(uint32_t& at, uint32_t v) {
  *const_cast<volatile uint32_t*>(&at) = v;
}
__device__ __forceinline__ void store_relaxed(uint64_t* to, uint64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}
__device__ __forceinline__ void store_relaxed(uint32_t* to, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ uint64_t now_ns() {
  uint64_t v;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(v));
  return v;
}

// Waits for the end of the previous kernel of the stream (programmatic dependent launch). This
// launch may have been set up while that kernel ran; the next launch may be set up from here on.
__device__ __forceinline__ void follow_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace torch::comms::ctran::kernels
