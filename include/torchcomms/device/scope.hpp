#pragma once

#include <torchcomms/device/memory.hpp>

// The threads of a block that make a call together.
namespace torchcomms::device {

// The scope of a call. All its threads make the call with the same arguments and get the same
// result.
enum class CoopScope { THREAD, WARP, BLOCK };

// The threads of a scope, as one of them sees it. Blocks may have any shape. A warp consists of
// those of its threads that the block has.
class Group {
 public:
#if !defined(TC_DEVICE_IS_HOST)
  TC_DEVICE explicit Group(CoopScope scope) : scope_(scope) {
    uint32_t x, y, z, width, height, depth;
    asm("mov.u32 %0, %%tid.x;" : "=r"(x));
    asm("mov.u32 %0, %%tid.y;" : "=r"(y));
    asm("mov.u32 %0, %%tid.z;" : "=r"(z));
    asm("mov.u32 %0, %%ntid.x;" : "=r"(width));
    asm("mov.u32 %0, %%ntid.y;" : "=r"(height));
    asm("mov.u32 %0, %%ntid.z;" : "=r"(depth));
    const uint32_t thread = (z * height + y) * width + x, threads = width * height * depth;
    warp_ = thread / kWarp;
    warps_ = (threads + kWarp - 1) / kWarp;
    const uint32_t left = threads - warp_ * kWarp;
    lanes_ = left < kWarp ? (1u << left) - 1 : ~0u;
    const bool is_warp = scope == CoopScope::WARP, is_block = scope == CoopScope::BLOCK;
    index_ = is_block ? thread : is_warp ? thread % kWarp : 0;
    count_ = is_block ? threads : is_warp ? (left < kWarp ? left : kWarp) : 1;
  }

  // Synchronizes the threads: after it, each sees what all have done before it.
  TC_DEVICE void sync() const {
    if (scope_ == CoopScope::BLOCK) asm volatile("bar.sync 0;" ::: "memory");
    if (scope_ == CoopScope::WARP) asm volatile("bar.warp.sync %0;" ::"r"(lanes_) : "memory");
  }
  // Returns: true if `says` is true in any thread. It also synchronizes as sync() does.
  TC_DEVICE bool any(bool says) const {
    uint32_t all = says ? 1 : 0;
    if (scope_ == CoopScope::BLOCK)
      asm volatile(
          "{ .reg .pred one, some; setp.ne.u32 one, %1, 0; bar.red.or.pred some, 0, one;"
          " selp.u32 %0, 1, 0, some; }"
          : "=r"(all)
          : "r"(all)
          : "memory");
    if (scope_ == CoopScope::WARP) {
      asm volatile(
          "{ .reg .pred one, some; setp.ne.u32 one, %1, 0; vote.sync.any.pred some, one, %2;"
          " selp.u32 %0, 1, 0, some; }"
          : "=r"(all)
          : "r"(all), "r"(lanes_)
          : "memory");
      sync();  // a vote orders no memory
    }
    return all != 0;
  }
#else
  explicit Group(CoopScope) {}
  void sync() const {}
  bool any(bool says) const { return says; }
#endif

  TC_DEVICE uint32_t index() const { return index_; }
  TC_DEVICE uint32_t count() const { return count_; }
  TC_DEVICE bool is_leader() const { return index_ == 0; }
  // Index of the warp in the block, and number of warps.
  TC_DEVICE uint32_t warp() const { return warp_; }
  TC_DEVICE uint32_t warps() const { return warps_; }

 private:
  static constexpr uint32_t kWarp = 32;
#if !defined(TC_DEVICE_IS_HOST)
  CoopScope scope_;
  uint32_t lanes_;
#endif
  uint32_t index_ = 0, count_ = 1, warp_ = 0, warps_ = 1;
};

}  // namespace torchcomms::device
