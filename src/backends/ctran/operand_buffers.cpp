#include "backends/ctran/operand_buffers.hpp"

#include <cstring>

#include <ATen/EmptyTensor.h>

#include "core/comm/operand_checks.hpp"

namespace torch::comms::ctran {
namespace {

bool overlap(ConstBytes a, ConstBytes b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() &&
         b.data() < a.data() + a.size();
}

bool same(ConstBytes a, ConstBytes b) {
  return !a.empty() && a.data() == b.data() && a.size() == b.size();
}

}  // namespace

Bytes writable_bytes_of(const at::Tensor& tensor) {
  require_plain_memory(tensor);
  if (tensor.numel() == 0) return {};
  // This avoids data_ptr(), so that a tensor that requires a gradient or is copy-on-write can be
  // moved as well.
  auto* base = static_cast<std::byte*>(tensor.storage().mutable_data());
  return {base + static_cast<size_t>(tensor.storage_offset()) * tensor.element_size(),
          tensor.nbytes()};
}

ConstBytes bytes_of(const at::Tensor& tensor) {
  require_plain_memory(tensor);
  if (tensor.numel() == 0) return {};
  const auto* base = static_cast<const std::byte*>(tensor.storage().data());
  return {base + static_cast<size_t>(tensor.storage_offset()) * tensor.element_size(),
          tensor.nbytes()};
}

void OperandBuffers::read(const at::Tensor& tensor) {
  // A copy-on-write tensor is copied now, because a tensor that shares its memory may be written to
  // before the call ends.
  input_.push_back(writable_bytes_of(tensor));
  tensors_.push_back(&tensor);
}

void OperandBuffers::write(const at::Tensor& tensor) {
  output_.push_back(writable_bytes_of(tensor));
  tensors_.push_back(&tensor);
}

void OperandBuffers::separate_all() { separate(std::nullopt); }

void OperandBuffers::separate_but_slots(size_t input, size_t output) {
  const bool in_place = same(input_[input], output_[output]);
  separate(in_place ? std::optional(InPlace{input, output}) : std::nullopt);
}

void OperandBuffers::separate_but_parts(ConstBytes in, Bytes out) {
  separate(same(in, out) ? std::optional(InPlace{0, 0}) : std::nullopt);
}

void OperandBuffers::separate(std::optional<InPlace> allowed) {
  for (size_t i = 0; i < input_.size(); ++i)
    for (size_t o = 0; o < output_.size(); ++o) {
      const bool in_place = allowed && i == allowed->input && o == allowed->output;
      if (!in_place && overlap(input_[i], output_[o])) return copy_input();
    }
}

void OperandBuffers::copy_input() {
  size_t total = 0;
  for (const auto input : input_) total += input.size();
  at::Tensor copy(at::detail::empty_cpu({static_cast<int64_t>(total)}, at::kByte));
  auto* to = static_cast<std::byte*>(copy.mutable_data_ptr());
  const ConstBytes whole{to, total};
  for (const auto input : input_) {
    if (input.empty()) continue;
    std::memcpy(to, input.data(), input.size());
    to += input.size();
  }
  replace_input(std::move(copy), whole);
}

void OperandBuffers::replace_input(at::Tensor memory, ConstBytes bytes) {
  input_.assign(1, bytes);
  copies_.push_back(std::move(memory));
}

std::vector<c10::Storage> OperandBuffers::storages() const {
  std::vector<c10::Storage> kept;
  kept.reserve(tensors_.size() + copies_.size());
  for (const auto* tensor : tensors_) kept.push_back(tensor->storage());
  for (const auto& tensor : copies_) kept.push_back(tensor.storage());
  return kept;
}

}  // namespace torch::comms::ctran
