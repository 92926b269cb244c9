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
// thread. Of each class at most kMost blocks are kept; nothing gives them back.
template <class T>
class Recycled {
 public:
  static constexpr size_t kMost = 4096;
  static constexpr size_t kLineBytes = 64;  // of a core's cache

  static void* operator new(size_t size_bytes) {
    if (!TC_RECYCLES || size_bytes != sizeof(T)) return ::operator new(size_bytes);
    if (mine.first == nullptr) mine.first = given_back.exchange(nullptr, std::memory_order_acquire);
    if (mine.first == nullptr) return ::operator new(size_bytes);
    kept.fetch_sub(1, std::memory_order_relaxed);
    Block* const block = mine.first;
    mine.first = block->next;
    // Another core has left it: it is here when the next operation takes it.
    if (const auto* const next = reinterpret_cast<const char*>(mine.first); next != nullptr)
      for (size_t at = 0; at <= sizeof(T); at += kLineBytes)
        __builtin_prefetch(next + at, /*to write*/ 1);
    return block;
  }

  static void operator delete(void* at, size_t size_bytes) noexcept {
    static_assert(sizeof(T) >= sizeof(Block) && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (!TC_RECYCLES || size_bytes != sizeof(T) || kept.load(std::memory_order_relaxed) >= kMost)
      return ::operator delete(at, size_bytes);
    kept.fetch_add(1, std::memory_order_relaxed);
    push(new (at) Block, nullptr);
  }

 private:
  friend T;  // which alone is one
  Recycled() = default;

  struct Block {
    Block* next = nullptr;
  };
  // A chain from `first` to its last block. Only whole chains are taken off, so no block can come
  // back unnoticed between a look at the head and its exchange.
  static void push(Block* first, Block* last) noexcept {
    if (last == nullptr) last = first;
    last->next = given_back.load(std::memory_order_relaxed);
    while (!given_back.compare_exchange_weak(last->next, first, std::memory_order_release,
                                             std::memory_order_relaxed)) {
    }
  }
  // What a thread has taken off and not used; it goes back when the thread ends.
  struct Cache {
    ~Cache() {
      if (first == nullptr) return;
      Block* last = first;
      while (last->next != nullptr) last = last->next;
      push(first, last);
      first = nullptr;
    }
    Block* first = nullptr;
  };

  static inline std::atomic<Block*> given_back{nullptr};
  static inline std::atomic<size_t> kept{0};
  static inline thread_local Cache mine;
};

}  // namespace torch::comms::base
