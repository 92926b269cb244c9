#include "backends/gloo/order_keys.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include <torchcomms/base/error.hpp>

#include "backends/gloo/flat_view.hpp"

namespace torch::comms::gloo {
namespace {

template <class Key>
constexpr Key kSign = std::numeric_limits<Key>::min();
template <class Key>
constexpr Key kMagnitude = std::numeric_limits<Key>::max();
// The bits of infinity. Larger magnitudes are NaN.
template <class Key>
constexpr Key kInfinity = sizeof(Key) == 4 ? Key{0x7f800000} : static_cast<Key>(0x7ff0000000000000);

// The block size. The compiler vectorizes a loop of known length.
constexpr size_t kBlock = 64;

template <class Key, class Function>
void map_in_place(const at::Tensor& keys, const Function& function) {
  auto* at = static_cast<std::byte*>(keys.mutable_data_ptr());
  Key block[kBlock] = {};
  for (size_t rest = keys.nbytes(), part = 0; rest > 0; rest -= part, at += part) {
    part = std::min(rest, sizeof block);
    std::memcpy(block, at, part);
    for (Key& key : block) key = function(key);
    std::memcpy(at, block, part);
  }
}

// Maps floating-point bits to integers in the same order: negative numbers have the order of their
// complements. The function is its own inverse.
template <class Key>
Key reordered(Key bits) {
  return bits ^ ((bits >> (8 * sizeof(Key) - 1)) & kMagnitude<Key>);
}

template <class Key>
void make_keys(const at::Tensor& keys, OrderKeys kind, RedOpType op) {
  if (kind == OrderKeys::kUnsigned)
    map_in_place<Key>(keys, [](Key bits) { return bits ^ kSign<Key>; });
  else if (op == RedOpType::MAX)  // a NaN gets the plus sign
    map_in_place<Key>(keys, [](Key bits) {
      const Key magnitude = bits & kMagnitude<Key>;
      return reordered(magnitude > kInfinity<Key> ? magnitude : bits);
    });
  else  // a NaN gets the minus sign
    map_in_place<Key>(keys, [](Key bits) {
      const Key magnitude = bits & kMagnitude<Key>;
      return reordered(magnitude > kInfinity<Key> ? bits | kSign<Key> : bits);
    });
}

template <class Key>
void make_numbers(const at::Tensor& keys, OrderKeys kind) {
  if (kind == OrderKeys::kUnsigned)
    map_in_place<Key>(keys, [](Key key) { return key ^ kSign<Key>; });
  else
    map_in_place<Key>(keys, [](Key key) { return reordered(key); });
}

}  // namespace

at::Tensor to_order_keys(const at::Tensor& numbers, OrderKeys kind, RedOpType op) {
  TC_CHECK(kind != OrderKeys::kNone && (op == RedOpType::MIN || op == RedOpType::MAX));
  const bool narrow = numbers.element_size() == 4;
  auto keys = view_as(numbers, narrow ? at::kInt : at::kLong);
  if (narrow)
    make_keys<int32_t>(keys, kind, op);
  else
    make_keys<int64_t>(keys, kind, op);
  return keys;
}

at::Tensor from_order_keys(const at::Tensor& keys, OrderKeys kind, at::ScalarType dtype) {
  TC_CHECK(kind != OrderKeys::kNone);
  if (keys.element_size() == 4)
    make_numbers<int32_t>(keys, kind);
  else
    make_numbers<int64_t>(keys, kind);
  return view_as(keys, dtype);
}

}  // namespace torch::comms::gloo
