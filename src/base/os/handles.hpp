#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <utility>

#include <torchcomms/base/export.hpp>

// Types that own resources of the operating system: file descriptors and mapped memory.
namespace torch::comms::base {

// A move-only handle. The destructor, and an assignment of another handle, call `Close` unless the
// handle is `kNull`.
template <class T, auto Close, T kNull>
class UniqueHandle {
 public:
  UniqueHandle() noexcept = default;
  explicit UniqueHandle(T handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, kNull)) {}
  UniqueHandle& operator=(UniqueHandle other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != kNull) Close(handle_);
  }
  T get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != kNull; }

 private:
  T handle_ = kNull;
};

// Closes `descriptor` and removes it from the list of set_close_on_fork(). Descriptors in that list
// must be closed by this function. Returns: as close(2).
// Threads: any.
TC_API int close_descriptor(int descriptor) noexcept;
using FileDescriptor = UniqueHandle<int, close_descriptor, -1>;

// A range of mapped memory; the destructor unmaps it. It does not recognize MAP_FAILED.
class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(void* at, size_t size) noexcept : bytes_(static_cast<std::byte*>(at), size) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, std::span<std::byte>{})) {}
  Mapping& operator=(Mapping other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return !bytes_.empty(); }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace torch::comms::base
