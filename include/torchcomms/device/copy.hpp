#pragma once

#include <torchcomms/device/scope.hpp>

namespace torchcomms::device {

// Copies the elements of T that lie completely within `bytes`, from offset `begin` on.
// Returns: the offset at which they end.
template <class T>
TC_DEVICE uint64_t copy_as(char* to, const char* from, uint64_t begin, uint64_t bytes,
                           const Group& group) {
  const uint64_t elements = (bytes - begin) / sizeof(T);
  const auto* const source = reinterpret_cast<const T*>(from + begin);
  auto* const target = reinterpret_cast<T*>(to + begin);
#if !defined(TC_DEVICE_IS_HOST)
#pragma unroll 4
#endif
  for (uint64_t i = group.index(); i < elements; i += group.count()) target[i] = source[i];
  return begin + elements * sizeof(T);
}

// Copies memory of any alignment; the threads of a group share the work. Units are 16 bytes if
// source and target have the same offset from a 16-byte boundary, otherwise 4 bytes or 1 byte.
// Order: that of each thread's own stores.
TC_DEVICE void copy_bytes(void* to, const void* from, uint64_t bytes, const Group& group) {
  auto* const target = static_cast<char*>(to);
  const auto* const source = static_cast<const char*>(from);
  const auto address = reinterpret_cast<uint64_t>(target);
  const uint64_t apart = address - reinterpret_cast<uint64_t>(source);
  const uint64_t unit = apart % 16 == 0 ? 16 : apart % 4 == 0 ? 4 : 1;
  const uint64_t before = (unit - address % unit) % unit;
  uint64_t done = before < bytes ? before : bytes;
  (void)copy_as<uint8_t>(target, source, 0, done, group);
  if (unit == 16) done = copy_as<Bytes16>(target, source, done, bytes, group);
  if (unit >= 4) done = copy_as<uint32_t>(target, source, done, bytes, group);
  (void)copy_as<uint8_t>(target, source, done, bytes, group);
}

}  // namespace torchcomms::device
