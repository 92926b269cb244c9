#include "backends/ctran/registered_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>
#include <torchcomms/base/error.hpp>

#include "core/operands.hpp"
#include "ctran/window/window.hpp"

namespace torch::comms::ctran {
namespace {

struct Note {
  static constexpr size_t kMostDimensions = 16;
  uint8_t dtype = 0, dimensions = 0;
  int64_t sizes[kMostDimensions] = {};
};
static_assert(sizeof(Note) <= Window::kMostNoteBytes && std::is_trivially_copyable_v<Note>);

}  // namespace

at::Tensor shared_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  const PlainOperators plain;
  const auto elements = static_cast<uint64_t>(c10::multiply_integers(sizes));
  auto block = std::make_shared<SharedBlock>(elements * c10::elementSize(dtype));
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  return at::from_blob(block->bytes().data(), sizes, [block](void*) {}, options);
}

std::string note_of(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() > Note::kMostDimensions)
    throw CommError(Errc::kInvalidArgument, "tensor has " + std::to_string(sizes.size()) +
                                                " dimensions, allowed is up to " +
                                                std::to_string(Note::kMostDimensions));
  Note note;
  note.dtype = static_cast<uint8_t>(tensor.scalar_type());
  note.dimensions = static_cast<uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), note.sizes);
  return {reinterpret_cast<const char*>(&note), sizeof note};
}

std::pair<at::ScalarType, std::vector<int64_t>> read_note(std::string_view text) {
  Note note;
  const bool right = text.size() == sizeof note;
  if (right) std::memcpy(&note, text.data(), sizeof note);
  if (!right || note.dimensions > Note::kMostDimensions)
    throw CommError(Errc::kMismatch, "what a rank tells of its tensor is not what we know");
  return {static_cast<at::ScalarType>(note.dtype),
          std::vector<int64_t>(note.sizes, note.sizes + note.dimensions)};
}

}  // namespace torch::comms::ctran
