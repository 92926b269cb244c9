#pragma once

// Memory operations that other devices and the host observe, and a few device functions. The same
// source compiles with nvcc, NVRTC and clang and needs no other header of these compilers. For
// other compilers a host thread acts as a thread block of one thread; the tests use that.
#if defined(__CUDACC__)
#define TC_DEVICE __device__ inline
#define TC_ANYWHERE __host__ __device__ constexpr
#elif defined(__CUDA__)
#define TC_DEVICE __attribute__((device)) inline
#define TC_ANYWHERE __attribute__((host)) __attribute__((device)) constexpr
#else
#define TC_DEVICE inline
#define TC_ANYWHERE constexpr
#define TC_DEVICE_IS_HOST
#include <sched.h>
#include <time.h>
#endif

#include <torchcomms/device/types.hpp>

namespace torchcomms::device {

// A unit of 16 bytes for copies.
struct alignas(16) Bytes16 {
  uint32_t x, y, z, w;
};

#if !defined(TC_DEVICE_IS_HOST)

TC_DEVICE uint64_t load_relaxed(const uint64_t* from) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}
TC_DEVICE uint32_t load_relaxed(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
// An acquire load: this thread then sees everything that the writer did before its release.
TC_DEVICE uint64_t load_acquire(const uint64_t* from) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}
// A system-wide fence: a thread that acquires a later store of this thread sees everything that
// this thread did and saw before.
TC_DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// The functions below store or add with release semantics only after fence_system().
TC_DEVICE void store_fenced(uint64_t* to, uint64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}
TC_DEVICE void store_fenced(uint32_t* to, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
TC_DEVICE void add_fenced(uint64_t* to, uint64_t v) {
  asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}
// Replaces the word with `after` if it is `before`.
// Returns: true if it did.
TC_DEVICE bool exchange_if(uint64_t* word, uint64_t before, uint64_t after) {
  uint64_t seen;
  asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(seen)
               : "l"(word), "l"(before), "l"(after)
               : "memory");
  return seen == before;
}
TC_DEVICE uint64_t now_ns() {
  uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
  return v;
}
TC_DEVICE void pause() {}

#else

inline uint64_t load_relaxed(const uint64_t* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline uint32_t load_relaxed(const uint32_t* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
inline uint64_t load_acquire(const uint64_t* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
// Each store below is a release by itself, because ThreadSanitizer does not understand fences.
inline void fence_system() {}
inline void store_fenced(uint64_t* to, uint64_t v) { __atomic_store_n(to, v, __ATOMIC_RELEASE); }
inline void store_fenced(uint32_t* to, uint32_t v) { __atomic_store_n(to, v, __ATOMIC_RELEASE); }
inline void add_fenced(uint64_t* to, uint64_t v) {
  (void)__atomic_fetch_add(to, v, __ATOMIC_RELEASE);
}
inline bool exchange_if(uint64_t* word, uint64_t before, uint64_t after) {
  return __atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE);
}
inline uint64_t now_ns() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}
inline void pause() { (void)::sched_yield(); }

#endif

}  // namespace torchcomms::device
