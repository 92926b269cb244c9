#include "backends/nccl/windows/nccl_allocator.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torchcomms/base/error.hpp>

#include "backends/nccl/streams/nccl_device.hpp"
#include "base/os/loaded_library.hpp"
#include "base/os/log.hpp"
#include "core/comm/operand_checks.hpp"

// Declared as in torch's own header. That header needs the vendor's toolkit, and its library exists
// only with a torch for GPUs. So the function is looked up when it is needed.
struct CUstream_st;
namespace c10::cuda::CUDACachingAllocator {
class CUDAAllocator;
}

namespace torch::comms::nccl {
namespace {

constexpr int kMemorySince = 21900;
constexpr const char* kFeature = "get_mem_allocator()";

// All live allocations, by start address. Lookups go on until the process ends.
struct AllocationTable {
  std::mutex mutex;
  std::map<const char*, size_t> sizes_bytes;
};
AllocationTable& allocation_table() {
  static auto* const all = new AllocationTable;
  return *all;
}

// Allocates and frees the memory of one library.
//
// Threads: any.
class LibraryMemory {
 public:
  explicit LibraryMemory(const Vendor& vendor) : library_(VendorLibrary::load(vendor)) {
    if (library_.is_blocking())
      throw CommError(Errc::kUnsupported, "backend '" + std::string(vendor.backend) +
                                              "' has no allocator for CPU memory");
    library_.require(library_.MemAlloc, kFeature, kMemorySince);
    library_.require(library_.MemFree, kFeature, kMemorySince);
  }

  const VendorLibrary& library() const noexcept { return library_; }

  // Returns: null if the library has no memory left, which is logged.
  void* allocate(size_t size_bytes) const {
    void* at = nullptr;
    const auto result = library_.MemAlloc(&at, size_bytes);
    if (result == abi::kSuccess) {
      const std::lock_guard lock(allocation_table().mutex);
      allocation_table().sizes_bytes[static_cast<const char*>(at)] = size_bytes;
      return at;
    }
    base::log(base::LogLevel::kWarning, std::string(library_.vendor().library) +
                                            " could not allocate " + std::to_string(size_bytes) +
                                            " bytes of memory: " + library_.GetErrorString(result));
    return nullptr;
  }
  void release(void* at) const {
    {
      const std::lock_guard lock(allocation_table().mutex);
      allocation_table().sizes_bytes.erase(static_cast<const char*>(at));
    }
    const auto result = library_.MemFree(at);
    if (result != abi::kSuccess)
      base::log(base::LogLevel::kWarning,
                std::string(library_.vendor().library) +
                    " could not free memory: " + library_.GetErrorString(result));
  }

 private:
  const VendorLibrary library_;
};

// Runs `body` with `device` as the current device.
template <class Body>
auto on_device(const LibraryMemory& memory, int device, const Body& body) {
  const auto runtime = runtime_of(memory.library().vendor());
  const gpu::CaptureModeGuard mode(*runtime);
  const gpu::DeviceGuard guard(*runtime, device);
  return body();
}

[[noreturn]] void refuse(size_t size_bytes) {
  throw CommError(Errc::kResourceExhausted, "the library could not allocate " +
                                                std::to_string(size_bytes) + " bytes of memory");
}

class HostAllocator final : public c10::Allocator {
 public:
  explicit HostAllocator(std::shared_ptr<const LibraryMemory> memory)
      : memory_(std::move(memory)) {}

  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes == 0) return {nullptr, at::kCPU};
    auto allocation =
        std::make_unique<HostAllocation>(HostAllocation{memory_, memory_->allocate(size_bytes)});
    if (allocation->at == nullptr) refuse(size_bytes);
    auto* const at = allocation->at;
    return {at, allocation.release(), release, at::kCPU};
  }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }

 private:
  struct HostAllocation {
    std::shared_ptr<const LibraryMemory> memory;
    void* at;
  };
  static void release(void* allocation) {
    const std::unique_ptr<HostAllocation> it(static_cast<HostAllocation*>(allocation));
    it->memory->release(it->at);
  }

  const std::shared_ptr<const LibraryMemory> memory_;
};

using AllocateFunction = std::function<void*(size_t, int, CUstream_st*)>;
using FreeFunction = std::function<void(void*, size_t, int, CUstream_st*)>;
using TorchAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;
using Create = std::shared_ptr<TorchAllocator>(AllocateFunction, FreeFunction);

Create* find_create() {
  constexpr const char* kSymbol =
      "_ZN5torch4cuda22CUDAPluggableAllocator21createCustomAllocatorESt8functionIFPvmiP11CUstream_"
      "stEES2_IFvS3_miS5_EE";
  std::string why = "no libtorch_cuda.so is loaded";
  for (const auto& path : base::loaded_libraries("libtorch_cuda.so"))
    if (void* const library = base::open_library(path, why); library != nullptr)
      if (void* const found = ::dlsym(library, kSymbol); found != nullptr)
        return reinterpret_cast<Create*>(found);
  throw CommError(Errc::kUnsupported,
                  "this torch has no pluggable allocators for GPU memory (" + why + ")");
}

std::shared_ptr<c10::Allocator> device_allocator(std::shared_ptr<const LibraryMemory> memory) {
  auto* const create = find_create();
  auto allocator = create(
      [memory](size_t size_bytes, int device, CUstream_st*) {
        return on_device(*memory, device, [&] { return memory->allocate(size_bytes); });
      },
      [memory](void* at, size_t, int device, CUstream_st* stream) {
        on_device(*memory, device, [&] {
          // The allocator has waited for all other streams that used the memory.
          synchronize_stream(*runtime_of(memory->library().vendor()), stream);
          memory->release(at);
        });
      });
  // TorchAllocator derives from c10::Allocator, which is its only and first base.
  auto* const base = reinterpret_cast<c10::Allocator*>(allocator.get());
  return {std::move(allocator), base};
}

}  // namespace

std::shared_ptr<c10::Allocator> make_allocator(const Vendor& vendor) {
  auto memory = std::make_shared<const LibraryMemory>(vendor);
  if (memory->library().is_on_host_memory())
    return std::make_shared<HostAllocator>(std::move(memory));
  return device_allocator(std::move(memory));
}

at::Tensor allocate_bytes(const Vendor& vendor, const at::Device& device, size_t size_bytes) {
  const PlainDispatchGuard plain;
  const auto memory = std::make_shared<const LibraryMemory>(vendor);
  const auto run_on_device = [memory, device](const auto& body) {
    if (device.is_cpu()) return body();
    return on_device(*memory, device.index(), body);
  };
  auto* const at = run_on_device([&] { return memory->allocate(std::max<size_t>(size_bytes, 1)); });
  if (at == nullptr) refuse(size_bytes);
  const auto runtime = device.is_cpu() ? gpu::Runtime::shared_cpu() : runtime_of(vendor);
  auto tensor = at::from_blob(
      at, {static_cast<int64_t>(size_bytes)},
      [memory, run_on_device, runtime, device](void* address) {
        synchronize_torch_stream(*runtime, device);
        run_on_device([&] { memory->release(address); });
      },
      at::TensorOptions().dtype(at::kByte).device(device), device);
  return tensor.zero_();
}

std::optional<Allocation> allocation_of(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  const std::lock_guard lock(allocation_table().mutex);
  const auto after = allocation_table().sizes_bytes.upper_bound(at);
  if (after == allocation_table().sizes_bytes.begin()) return std::nullopt;
  const auto& [begin, size_bytes] = *std::prev(after);
  if (at >= begin + size_bytes) return std::nullopt;
  return Allocation{const_cast<char*>(begin), size_bytes};
}

}  // namespace torch::comms::nccl
