#include "backends/nccl/allocator.hpp"

#include <dlfcn.h>

#include <functional>
#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/device.hpp"
#include "base/loaded_library.hpp"
#include "base/log.hpp"

// What torch's own header declares of it. That header needs the vendor's toolkit, and its library
// is there only with a torch for GPUs, so it is looked up when it is needed.
struct CUstream_st;
namespace c10::cuda::CUDACachingAllocator {
class CUDAAllocator;
}

namespace torch::comms::nccl {
namespace {

constexpr int kMemorySince = 21900;
constexpr const char* kFeature = "get_mem_allocator()";

// Memory of one library. Any thread.
class Memory {
 public:
  explicit Memory(const Vendor& vendor) : library_(Table::load(vendor)) {
    if (library_.calls_block())
      throw CommError(Errc::kUnsupported, "backend '" + std::string(vendor.backend) +
                                              "' has no memory of its own on the CPU");
    library_.require(library_.MemAlloc, kFeature, kMemorySince);
    library_.require(library_.MemFree, kFeature, kMemorySince);
  }

  const Table& library() const noexcept { return library_; }

  // Null where there is none left, after a line in the log.
  void* take(size_t size_bytes) const {
    void* at = nullptr;
    const auto result = library_.MemAlloc(&at, size_bytes);
    if (result == abi::kSuccess) return at;
    base::log(base::LogLevel::kWarning, std::string(library_.vendor().library) + " has no " +
                                            std::to_string(size_bytes) +
                                            " bytes of memory: " + library_.GetErrorString(result));
    return nullptr;
  }
  void give_back(void* at) const {
    const auto result = library_.MemFree(at);
    if (result != abi::kSuccess)
      base::log(base::LogLevel::kWarning,
                std::string(library_.vendor().library) +
                    " did not take its memory back: " + library_.GetErrorString(result));
  }

 private:
  const Table library_;
};

class HostAllocator final : public c10::Allocator {
 public:
  explicit HostAllocator(std::shared_ptr<const Memory> memory) : memory_(std::move(memory)) {}

  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes == 0) return {nullptr, at::kCPU};
    auto piece = std::make_unique<Piece>(Piece{memory_, memory_->take(size_bytes)});
    if (piece->at == nullptr)
      throw CommError(Errc::kResourceExhausted,
                      "the library has no " + std::to_string(size_bytes) + " bytes of memory");
    auto* const at = piece->at;
    return {at, piece.release(), drop, at::kCPU};
  }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }

 private:
  struct Piece {
    std::shared_ptr<const Memory> memory;
    void* at;
  };
  static void drop(void* piece) {
    const std::unique_ptr<Piece> it(static_cast<Piece*>(piece));
    it->memory->give_back(it->at);
  }

  const std::shared_ptr<const Memory> memory_;
};

using Take = std::function<void*(size_t, int, CUstream_st*)>;
using GiveBack = std::function<void(void*, size_t, int, CUstream_st*)>;
using TorchAllocator = c10::cuda::CUDACachingAllocator::CUDAAllocator;
using Create = std::shared_ptr<TorchAllocator>(Take, GiveBack);

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

// On the device that is meant, whichever is current.
std::shared_ptr<c10::Allocator> device_allocator(std::shared_ptr<const Memory> memory) {
  auto* const create = find_create();
  const auto on = [](const Memory& memory, int device, const auto& body) {
    const auto runtime = runtime_of(memory.library().vendor());
    const gpu::CaptureModeGuard mode(*runtime);
    const gpu::DeviceGuard guard(*runtime, device);
    return body();
  };
  auto made = create(
      [memory, on](size_t size_bytes, int device, CUstream_st*) {
        return on(*memory, device, [&] { return memory->take(size_bytes); });
      },
      [memory, on](void* at, size_t, int device, CUstream_st*) {
        on(*memory, device, [&] { memory->give_back(at); });
      });
  // It derives from it, alone and first.
  auto* const base = reinterpret_cast<c10::Allocator*>(made.get());
  return {std::move(made), base};
}

}  // namespace

std::shared_ptr<c10::Allocator> make_allocator(const Vendor& vendor) {
  auto memory = std::make_shared<const Memory>(vendor);
  if (memory->library().on_host_memory()) return std::make_shared<HostAllocator>(std::move(memory));
  return device_allocator(std::move(memory));
}

}  // namespace torch::comms::nccl
