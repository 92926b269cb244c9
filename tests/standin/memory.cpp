#include "standin/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

namespace torch::comms::standin {
namespace {

struct Allocation {
  int file;
  size_t size_bytes;
};

std::mutex mutex;  // guards the allocations
std::map<char*, Allocation>& allocations() {
  // Never destroyed, as the communicators: threads may give memory back when the process ends.
  static auto& all = *new std::map<char*, Allocation>;
  return all;
}

char* map(int file, size_t size_bytes, uint64_t offset_bytes) {
  void* at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                    static_cast<off_t>(offset_bytes));
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

}  // namespace

void* allocate(size_t size_bytes) {
  const int file = ::memfd_create("torchcomms_standin", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  char* at = nullptr;
  if (::ftruncate(file, static_cast<off_t>(size_bytes)) == 0) at = map(file, size_bytes, 0);
  if (at == nullptr) {
    ::close(file);
    return nullptr;
  }
  const std::lock_guard lock(mutex);
  allocations()[at] = {file, size_bytes};
  return at;
}

bool release(void* data) {
  const std::lock_guard lock(mutex);
  const auto found = allocations().extract(static_cast<char*>(data));
  if (found.empty()) return false;
  ::munmap(data, found.mapped().size_bytes);
  ::close(found.mapped().file);
  return true;
}

size_t count_allocations() {
  const std::lock_guard lock(mutex);
  return allocations().size();
}

std::optional<Place> place_of(const void* data, size_t size_bytes) {
  auto* const at = static_cast<char*>(const_cast<void*>(data));
  const std::lock_guard lock(mutex);
  const auto after = allocations().upper_bound(at);
  if (after == allocations().begin()) return std::nullopt;
  const auto& [begin, allocation] = *std::prev(after);
  const auto offset = static_cast<size_t>(at - begin);
  if (offset > allocation.size_bytes || size_bytes > allocation.size_bytes - offset)
    return std::nullopt;
  return Place{::getpid(), allocation.file, offset, size_bytes, at};
}

Mapped::Mapped(const Place& place) {
  if (place.process == ::getpid()) {
    at_ = place.address;
    return;
  }
  const auto path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  at_ = map(file, place.size_bytes, place.offset_bytes);
  if (at_ != nullptr) mapped_bytes_ = place.size_bytes;
  ::close(file);
}

Mapped::~Mapped() {
  if (mapped_bytes_ > 0) ::munmap(at_, mapped_bytes_);
}

}  // namespace torch::comms::standin
