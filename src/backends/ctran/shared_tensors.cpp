#include <atomic>
#include <limits>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torchcomms/base/env.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "transport/shm/arena.hpp"

// Tensors in memory that peers map.
namespace torch::comms {
namespace {

using transport::shm::Arena;

constexpr size_t kLeast = 64u << 10;  // bytes; messages below leave at once anyway
// torch's own allocators have less.
constexpr uint8_t kPriority = std::numeric_limits<uint8_t>::max();

std::atomic<bool> is_wanted{false};

class SharedAllocator final : public c10::Allocator {
 public:
  SharedAllocator(Arena& arena, c10::Allocator& otherwise) : arena_(arena), otherwise_(otherwise) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeast || !is_wanted.load(std::memory_order_relaxed))
      return otherwise_.allocate(bytes);
    void* const at = arena_.allocate(bytes);
    if (at == nullptr) return otherwise_.allocate(bytes);  // no room, or a forked child
    c10::profiledCPUMemoryReporter().New(at, bytes);
    return {at, at, &release, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* into, const void* from, size_t bytes) const override {
    default_copy_data(into, from, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_any; }

  static void install() {
    // Never destroyed: tensors may outlive everything.
    static auto* const installed = new SharedAllocator(Arena::open(), *c10::GetCPUAllocator());
    the_one = installed;
    c10::SetCPUAllocator(installed, kPriority);
  }

 private:
  static void release(void* at) {
    c10::profiledCPUMemoryReporter().Delete(at);
    the_one->arena_.release(at);
  }
  static void release_any(void* at) {
    if (the_one->arena_.has(at)) return release(at);
    the_one->otherwise_.raw_deleter()(at);
  }
  static inline SharedAllocator* the_one = nullptr;

  Arena& arena_;
  c10::Allocator& otherwise_;
};

}  // namespace

void TorchCommCtran::share_cpu_tensors(bool wanted) {
  if (wanted) {
    static const bool installed = (SharedAllocator::install(), true);
    static_cast<void>(installed);
  }
  is_wanted.store(wanted, std::memory_order_relaxed);
}

void TorchCommCtran::share_cpu_tensors_where_asked() {
  if (env_to_value<bool>("TORCHCOMM_SHARE_CPU_TENSORS", false)) share_cpu_tensors(true);
}

}  // namespace torch::comms
