#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

// Memory that other processes of this user can map.
namespace torch::comms::standin {

// Null where there is none left. Begins with a page.
void* allocate(size_t size_bytes);
// False: it is none of these.
bool release(void* data);
size_t count_allocations();

// Where a part of such memory is, as others are told.
struct Place {
  int64_t process = 0, file = -1;
  uint64_t offset_bytes = 0, size_bytes = 0;
  char* address = nullptr;  // in that process
};
// Nothing for other memory, or more than one allocation.
std::optional<Place> place_of(const void* data, size_t size_bytes);

// Such a part in this process; the address is null where it cannot be mapped.
class Mapped {
 public:
  explicit Mapped(const Place& place);
  ~Mapped();
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  char* at() const noexcept { return at_; }

 private:
  char* at_ = nullptr;
  size_t mapped_bytes_ = 0;  // 0: it is this process's own
};

}  // namespace torch::comms::standin
