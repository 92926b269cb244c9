#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "ctran/engine/engine_call.hpp"

namespace torch::comms::ctran {

// The tensors of one operation as the buffers that the engine moves, and the references that keep
// them alive. A few tensors need no allocation.
class OperandBuffers {
 public:
  // read() and write() append the memory of a contiguous tensor.
  // Throws: CommError(kInvalidArgument), without context, for a tensor without plain memory.
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

  // Each of these copies the input if it shares memory with the output in a way that the engine
  // does not support. Supported without a copy are: no sharing (separate_all()); input tensor
  // `input` being output tensor `output` (separate_but_slots()); and, with one tensor each, `in`
  // being `out` (separate_but_parts()).
  void separate_all();
  void separate_but_slots(size_t input, size_t output);
  void separate_but_parts(ConstBytes in, Bytes out);

  // Replaces the input by `bytes`, which begins at the start of `memory`.
  void replace_input(at::Tensor memory, ConstBytes bytes);

  std::span<const ConstBytes> input() const noexcept { return {input_.data(), input_.size()}; }
  std::span<const Bytes> output() const noexcept { return {output_.data(), output_.size()}; }

  // Returns: references to all memory, for a work that outlives the call. Storages can be freed
  // without Python.
  std::vector<c10::Storage> storages() const;

 private:
  struct InPlace {
    size_t input, output;
  };
  void separate(std::optional<InPlace> allowed);
  void copy_input();

  c10::SmallVector<ConstBytes, 4> input_;
  c10::SmallVector<Bytes, 4> output_;
  c10::SmallVector<const at::Tensor*, 8> tensors_;  // owned by the caller
  std::vector<at::Tensor> copies_;
};

// Returns: the memory of a contiguous tensor.
ConstBytes bytes_of(const at::Tensor& tensor);
Bytes writable_bytes_of(const at::Tensor& tensor);
// Returns: part `index` of `parts` equal parts.
template <class Span>
Span part_of(Span bytes, int index, int parts) {
  const size_t each = bytes.size() / static_cast<size_t>(parts);
  return bytes.subspan(each * static_cast<size_t>(index), each);
}

}  // namespace torch::comms::ctran
