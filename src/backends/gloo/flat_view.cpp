#include "backends/gloo/flat_view.hpp"

#include <cstring>

#include <ATen/EmptyTensor.h>
#include <torchcomms/base/error.hpp>

#include "core/comm/operand_checks.hpp"

namespace torch::comms::gloo {
namespace {

at::Tensor view_of(const c10::Storage& storage, at::ScalarType dtype, int64_t offset,
                   int64_t count) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage),
                                                   c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(dtype));
  impl->set_storage_offset(offset);
  impl->set_sizes_contiguous({count});
  return at::Tensor(std::move(impl));
}

}  // namespace

at::Tensor flat_view(const at::Tensor& tensor, at::ScalarType dtype) {
  require_plain_memory(tensor);
  const auto ratio = static_cast<int64_t>(tensor.element_size() / c10::elementSize(dtype));
  TC_CHECK(ratio * static_cast<int64_t>(c10::elementSize(dtype)) ==
           static_cast<int64_t>(tensor.element_size()));
  return view_of(tensor.storage(), dtype, tensor.storage_offset() * ratio, tensor.numel() * ratio);
}

at::Tensor view_as(const at::Tensor& flat, at::ScalarType dtype) {
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  const auto begin = flat.storage_offset() * static_cast<int64_t>(flat.element_size());
  const auto length = static_cast<int64_t>(flat.nbytes());
  TC_CHECK(begin % size == 0 && length % size == 0);
  return view_of(flat.storage(), dtype, begin / size, length / size);
}

at::Tensor slice(const at::Tensor& flat, int64_t begin, int64_t count) {
  return view_of(flat.storage(), flat.scalar_type(), flat.storage_offset() + begin, count);
}

at::Tensor scratch(int64_t count, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_cpu({count}, dtype));
}

int64_t total_bytes(const Tensors& tensors) {
  int64_t total = 0;
  for (const auto& tensor : tensors) total += static_cast<int64_t>(tensor.nbytes());
  return total;
}

std::optional<at::Tensor> joined_view(const Tensors& tensors) {
  std::optional<at::Tensor> whole;
  int64_t end = 0;
  for (const auto& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const auto part = byte_view(tensor);
    if (!whole) {
      whole = part;
    } else if (!part.storage().is_alias_of(whole->storage()) || part.storage_offset() != end) {
      return std::nullopt;
    }
    end = part.storage_offset() + part.numel();
  }
  if (whole) *whole = slice(*whole, 0, end - whole->storage_offset());
  return whole;
}

at::Tensor pack(const Tensors& tensors) {
  if (auto whole = joined_view(tensors)) return *whole;
  auto packed = scratch(total_bytes(tensors), at::kByte);
  auto* to = static_cast<std::byte*>(packed.mutable_data_ptr());
  for (const auto& tensor : tensors) {
    const auto part = byte_view(tensor);
    if (part.numel() == 0) continue;
    std::memcpy(to, part.const_data_ptr(), static_cast<size_t>(part.numel()));
    to += part.numel();
  }
  return packed;
}

void unpack(const at::Tensor& packed, const Tensors& tensors) {
  const auto* from = static_cast<const std::byte*>(packed.const_data_ptr());
  for (const auto& tensor : tensors) {
    const auto part = byte_view(tensor);
    if (part.numel() == 0) continue;
    std::memcpy(part.mutable_data_ptr(), from, static_cast<size_t>(part.numel()));
    from += part.numel();
  }
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto* a_begin = static_cast<const std::byte*>(a.const_data_ptr());
  const auto* b_begin = static_cast<const std::byte*>(b.const_data_ptr());
  return a_begin < b_begin + b.nbytes() && b_begin < a_begin + a.nbytes();
}

Tensors byte_views(const Tensors& tensors) {
  Tensors views;
  views.reserve(tensors.size());
  for (const auto& tensor : tensors) views.push_back(byte_view(tensor));
  return views;
}

}  // namespace torch::comms::gloo
