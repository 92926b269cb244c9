#pragma once

#include <atomic>
#include <cstddef>
#include <new>

// The address sanitizer is to see what is used after it was freed.
#if defined(__SANITIZE_ADDRESS__)
#define TC_RECYCLES 0
#else
#define TC_RECYCLES 1
#endif

namespace torch::comms::base {

// Base of a class whose objects come and go with every operation, often from one thread to another:
// what `delete` leaves is what the next `new` takes, so that neither asks the allocator. Any
// thread. Of each class at most kMaxBlocks blocks are kept; nothing gives them back.
template <class T>
class FreelistAllocated {
 public:
  static constexpr size_t kMaxBlocks = 4096;
  static constexpr size_t kCacheLineBytes = 64;  // of a core's cache

  static void* operator new(size_t size_bytes) {
    if (!TC_RECYCLES || size_bytes != sizeof(T)) return ::operator new(size_bytes);
    if (thread_cache.first == nullptr)
      thread_cache.first = freed_blocks.exchange(nullptr, std::memory_order_acquire);
    if (thread_cache.first == nullptr) return ::operator new(size_bytes);
    kept_blocks.fetch_sub(1, std::memory_order_relaxed);
    FreeBlock* const block = thread_cache.first;
    thread_cache.first = block->next;
    // Another core has left it: it is here when the next operation takes it.
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
  friend T;  // which alone is one
  FreelistAllocated() = default;

  struct FreeBlock {
    FreeBlock* next = nullptr;
  };
  // A chain from `first` to its last block. Only whole chains are taken off, so no block can come
  // back unnoticed between a look at the head and its exchange.
  static void push(FreeBlock* first, FreeBlock* last) noexcept {
    if (last == nullptr) last = first;
    last->next = freed_blocks.load(std::memory_order_relaxed);
    while (!freed_blocks.compare_exchange_weak(last->next, first, std::memory_order_release,
                                               std::memory_order_relaxed)) {
    }
  }
  // What a thread has taken off and not used; it goes back when the thread ends.
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
