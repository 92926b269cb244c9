#include "ctran/window/shared_memory_block.hpp"

#include <algorithm>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "base/os/system_error.hpp"
#include "transport/shm/shm_segment.hpp"

namespace torch::comms::ctran {
namespace {

base::Mapping private_memory(uint64_t size) {
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw base::system_error("mmap for " + std::to_string(size) + " bytes of a window");
  return {at, size};
}

}  // namespace

SharedMemoryBlock::SharedMemoryBlock(uint64_t size) : size_(size) {
  const auto mapped_size = std::max<uint64_t>(size, 1);
  try {
    auto file = transport::shm::create_memory("torchcomms-window", mapped_size);
    transport::shm::reserve_memory(file, mapped_size);
    mapping_ = transport::shm::map_memory(file, mapped_size);
    file_ = std::move(file);
  } catch (const CommError& error) {
    private_reason_ = error.why();
    mapping_ = private_memory(mapped_size);
    base::log(base::LogLevel::kInfo,
              "window memory is private to this process, so peers on this host copy it instead of "
              "mapping it: " +
                  private_reason_);
  }
}

}  // namespace torch::comms::ctran
