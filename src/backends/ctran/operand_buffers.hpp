#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "ctran/engine/engine_call.hpp"

namespace torch::comms::ctran {

// The tensors of one operation as the memory that the engine moves, and what keeps it alive.
// Few tensors cost no allocation.
class OperandBuffers {
 public:
  // Appends a contiguous tensor's memory. Throws CommError(kInvalidArgument), without context, for
  // one without plain memory.
  void read(const at::Tensor& tensor);
  void write(const at::Tensor& tensor);
  template <class List>
  void read_all(const List& tensors) {
    for (const auto& tensor : tensors) read(tensor);
  }
  template <class List>
  void write_all(const List& tensors) {
    for (const auto& tensor : tensors) write(tensor);
  }

  // Each copies the input where it shares memory with the output in a way in which the engine does
  // not work. These are the ways in which it does, exactly: in none; by input tensor `input` being
  // output tensor `output`; and, of one tensor each, by `in` being `out`.
  void separate_all();
  void separate_but_slots(size_t input, size_t output);
  void separate_but_parts(ConstBytes in, Bytes out);

  // The input is `bytes` instead, which begins like `memory`.
  void replace_input(at::Tensor memory, ConstBytes bytes);

  std::span<const ConstBytes> input() const noexcept { return {input_.data(), input_.size()}; }
  std::span<const Bytes> output() const noexcept { return {output_.data(), output_.size()}; }

  // References to all memory, for work that outlives the call. Of storages, which are freed without
  // Python.
  std::vector<c10::Storage> storages() const;

 private:
  struct InPlace {
    size_t input, output;
  };
  void separate(std::optional<InPlace> allowed);
  void copy_input();

  c10::SmallVector<ConstBytes, 4> input_;
  c10::SmallVector<Bytes, 4> output_;
  c10::SmallVector<const at::Tensor*, 8> tensors_;  // the caller's
  std::vector<at::Tensor> copies_;
};

// The memory of a contiguous tensor.
ConstBytes bytes_of(const at::Tensor& tensor);
Bytes writable_bytes_of(const at::Tensor& tensor);
// Part `index` of `parts` equal ones.
template <class Span>
Span part_of(Span bytes, int index, int parts) {
  const size_t each = bytes.size() / static_cast<size_t>(parts);
  return bytes.subspan(each * static_cast<size_t>(index), each);
}

}  // namespace torch::comms::ctran
