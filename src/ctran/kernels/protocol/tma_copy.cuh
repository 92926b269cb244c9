#pragma once

#include <cstdint>

#include "ctran/kernels/protocol/device.cuh"

// Starts copies of the TMA unit (cp.async.bulk, Hopper and later). One thread copies bytes to
// shared memory, and from there to any memory that the GPU maps.
// Units: addresses and sizes are multiples of 16 bytes.
namespace torch::comms::ctran::kernels::tma {

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void make_barrier(uint64_t& barrier) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
}
// Publishes initialized barriers. Call it after make_barrier() of all barriers.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Orders this thread and the TMA unit: each sees what the other did before the fence.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Starts a load into shared memory. `barrier` completes its phase when the bytes have arrived.
__device__ __forceinline__ void load(char* to_shared, const char* from, uint32_t bytes,
                                     uint64_t& barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to_shared)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}
__device__ __forceinline__ void wait_for_load(uint64_t& barrier, uint32_t parity) {
  for (uint32_t is_complete = 0; is_complete == 0;)
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(is_complete)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
}
__device__ __forceinline__ void store(char* to, const char* from_shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from_shared)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all stores but the newest `kNewest` have read shared memory.
template <int kNewest>
__device__ __forceinline__ void wait_for_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNewest) : "memory");
}
// Waits until all stores are complete.
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#endif

}  // namespace torch::comms::ctran::kernels::tma
