#include <string>

#include <torchcomms/base/error.hpp>

#include "backends/ncclx/allocator_segments.hpp"

#if defined(TC_CUDA_ALLOCATOR)
#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <type_traits>
#include <vector>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "base/os/loaded_library.hpp"
#endif

// The part of allocator_segments.hpp that uses torch's allocator. It is built with CUDA's headers,
// for the allocator's functions. The library with the allocator exists only with a torch for CUDA,
// so it is looked up when it is needed.
namespace torch::comms::ncclx {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw CommError(Errc::kUnsupported, "torch's caching allocator for CUDA is not available: " + why,
                  {.op = "init_caching_allocator_hook"});
}

#if defined(TC_CUDA_ALLOCATOR)

using Allocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;

Allocator& find_allocator() {
  if (!at::globalContext().hasCUDA()) refuse("torch finds no CUDA device");
  at::globalContext().lazyInitDevice(at::kCUDA);
  // c10::cuda::CUDACachingAllocator::allocator
  constexpr const char* kSymbol = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";
  std::string why = "no libc10_cuda.so is loaded";
  for (const auto& path : base::loaded_libraries("libc10_cuda.so"))
    if (void* const library = base::open_library(path, why); library != nullptr)
      if (void* const found = ::dlsym(library, kSymbol); found != nullptr)
        return *static_cast<std::atomic<Allocator*>*>(found)->load();
  refuse(why);
}

AllocatorSegment segment_at(size_t address, size_t size_bytes) {
  return {reinterpret_cast<char*>(address), size_bytes};  // NOLINT(performance-no-int-to-ptr)
}

void follow(Allocator& allocator) {
  auto& all = AllocatorSegments::of_process();
  allocator.attachAllocatorTraceTracker([&all](const auto& entry) {
    using Entry = std::remove_cvref_t<decltype(entry)>;
    const auto segment = segment_at(static_cast<size_t>(entry.addr_), entry.size_);
    if (entry.action_ == Entry::SEGMENT_ALLOC || entry.action_ == Entry::SEGMENT_MAP)
      all.add(entry.device_, segment);
    else if (entry.action_ == Entry::SEGMENT_FREE || entry.action_ == Entry::SEGMENT_UNMAP)
      all.remove(entry.device_, segment);
  });
  // Adds the segments that existed before; repeats if segments were added or freed meanwhile.
  for (;;) {
    const auto version = all.version();
    std::vector<AllocatorSegments::DeviceSegment> existing;
    for (const auto& one : allocator.snapshot().segments)
      existing.push_back(
          {one.device, segment_at(static_cast<size_t>(one.address), one.total_size)});
    if (all.add_all(version, existing)) return;
  }
}

#endif

}  // namespace

void init_caching_allocator_hook() {
#if defined(TC_CUDA_ALLOCATOR)
  static std::mutex mutex;
  static bool is_attached = false;
  const std::lock_guard lock(mutex);
  if (is_attached) return;
  auto& allocator = find_allocator();
  is_attached = true;  // an attached tracker cannot be detached
  follow(allocator);
#else
  refuse("torchcomms was built without the CUDA headers");
#endif
}

}  // namespace torch::comms::ncclx
