#include <atomic>
#include <limits>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torchcomms/base/env.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "transport/shm/shared_arena.hpp"

// The CPU allocator that places tensors in memory that peers map.
namespace torch::comms {
namespace {

using transport::shm::SharedArena;

constexpr size_t kMinSharedBytes =
    64u << 10;  // bytes; smaller allocations would leave half of their whole pages empty
// torch's own allocators have lower priorities.
constexpr uint8_t kPriority = std::numeric_limits<uint8_t>::max();

std::atomic<bool> is_sharing_enabled{false};

class SharedAllocator final : public c10::Allocator {
 public:
  SharedAllocator(SharedArena& arena, c10::Allocator& fallback)
      : arena_(arena), fallback_(fallback) {}

  c10::DataPtr allocate(size_t bytes) override {
    const bool shared =
        bytes >= kMinSharedBytes && is_sharing_enabled.load(std::memory_order_relaxed);
    void* const at = shared ? arena_.allocate(bytes) : nullptr;
    if (at == nullptr)
      return allocate_unshared(bytes);  // also if there is no room, or this is a forked child
    c10::profiledCPUMemoryReporter().New(at, bytes);
    return {at, at, &release, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* into, const void* from, size_t bytes) const override {
    default_copy_data(into, from, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  static void install() {
    // The allocator is never destroyed, because tensors may outlive every static object.
    static auto* const installed =
        new SharedAllocator(SharedArena::open(), *c10::GetCPUAllocator());
    instance = installed;
    c10::SetCPUAllocator(installed, kPriority);
  }

 private:
  // Allocates unshared memory with this allocator's deleter, because torch requires the deleter
  // that raw_deleter() returns.
  c10::DataPtr allocate_unshared(size_t bytes) {
    auto data = fallback_.allocate(bytes);
    if (fallback_.raw_deleter() == nullptr || data.get_deleter() != fallback_.raw_deleter())
      return data;
    void* const at = data.release_context();
    return {at, at, &release, data.device()};
  }
  static void release(void* at) {
    if (!instance->arena_.contains(at)) return instance->fallback_.raw_deleter()(at);
    c10::profiledCPUMemoryReporter().Delete(at);
    instance->arena_.release(at);
  }
  static inline SharedAllocator* instance = nullptr;

  SharedArena& arena_;
  c10::Allocator& fallback_;
};

}  // namespace

void TorchCommCtran::share_cpu_tensors(bool wanted) {
  if (wanted) {
    static const bool installed = (SharedAllocator::install(), true);
    static_cast<void>(installed);
  }
  is_sharing_enabled.store(wanted, std::memory_order_relaxed);
}

void TorchCommCtran::share_cpu_tensors_if_configured() {
  if (env_to_value<bool>("TORCHCOMM_SHARE_CPU_TENSORS", false)) share_cpu_tensors(true);
}

}  // namespace torch::comms
