#pragma once

#include <atomic>
#include <cstddef>
#include <new>

// Recycling is off under the address sanitizer, which otherwise could not see a use after free.
#if defined(__SANITIZE_ADDRESS__)
#define TC_RECYCLES 0
#else
#define TC_RECYCLES 1
#endif

namespace torch::comms::base {

// Base class that recycles the memory of objects made and deleted with every operation, often on
// different threads. `delete` puts a block on a freelist and the next `new` takes it, without a
// call of the allocator. A class keeps at most kMaxBlocks blocks; they are never returned to the
// allocator.
//
// Threads: any.
template <class T>
class FreelistAllocated {
 public:
  static constexpr size_t kMaxBlocks = 4096;
  static constexpr size_t kCacheLineBytes = 64;

  static void* operator new(size_t size_bytes) {
    if (!TC_RECYCLES || size_bytes != sizeof(T)) return ::operator new(size_bytes);
    if (thread_cache.first == nullptr)
      thread_cache.first = freed_blocks.exchange(nullptr, std::memory_order_acquire);
    if (thread_cache.first == nullptr) return ::operator new(size_bytes);
    kept_blocks.fetch_sub(1, std::memory_order_relaxed);
    FreeBlock* const block = thread_cache.first;
    thread_cache.first = block->next;
    // Another core freed the next block: prefetch it, so that it is in this core's cache for the
    // next operation.
    if (const auto* const next = reinterpret_cast<const char*>(thread_cache.first); next != nullptr)
      for (size_t at = 0; at <= sizeof(T); at += kCacheLineBytes)
        __builtin_prefetch(next + at, /*to write*/ 1);
    return block;
  }

  static void operator delete(void* at, size_t size_bytes) noexcept {
    static_assert(sizeof(T) >= sizeof(FreeBlock) && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (!TC_RECYCLES || size_bytes != sizeof(T) ||
        kept_blocks.load(std::memory_order_relaxed) >= kMaxBlocks)
      return ::operator delete(at, size_bytes);
    kept_blocks.fetch_add(1, std::memory_order_relaxed);
    push(new (at) FreeBlock, nullptr);
  }

 private:
  friend T;
  FreelistAllocated() = default;

  struct FreeBlock {
    FreeBlock* next = nullptr;
  };
  // Pushes the chain from `first` to `last`. Consumers take only whole chains, so no block can
  // return between the load of the head and its exchange (ABA).
  static void push(FreeBlock* first, FreeBlock* last) noexcept {
    if (last == nullptr) last = first;
    last->next = freed_blocks.load(std::memory_order_relaxed);
    while (!freed_blocks.compare_exchange_weak(last->next, first, std::memory_order_release,
                                               std::memory_order_relaxed)) {
    }
  }
  // The blocks that a thread has taken off and not used. They go back to the freelist when the
  // thread ends.
  struct ThreadCache {
    ~ThreadCache() {
      if (first == nullptr) return;
      FreeBlock* last = first;
      while (last->next != nullptr) last = last->next;
      push(first, last);
      first = nullptr;
    }
    FreeBlock* first = nullptr;
  };

  static inline std::atomic<FreeBlock*> freed_blocks{nullptr};
  static inline std::atomic<size_t> kept_blocks{0};
  static inline thread_local ThreadCache thread_cache;
};

}  // namespace torch::comms::base
