#include "core/window/window_metadata.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace torch::comms {
namespace {

struct PackedTensorMeta {
  static constexpr size_t kMaxDimensions = 16;
  uint8_t dtype = 0, dimensions = 0;
  int64_t sizes[kMaxDimensions] = {};
};
static_assert(std::is_trivially_copyable_v<PackedTensorMeta>);

}  // namespace

std::string encode_tensor_meta(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() > PackedTensorMeta::kMaxDimensions)
    throw CommError(Errc::kInvalidArgument, "tensor has " + std::to_string(sizes.size()) +
                                                " dimensions, allowed is up to " +
                                                std::to_string(PackedTensorMeta::kMaxDimensions));
  PackedTensorMeta note;
  note.dtype = static_cast<uint8_t>(tensor.scalar_type());
  note.dimensions = static_cast<uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), note.sizes);
  return {reinterpret_cast<const char*>(&note), sizeof note};
}

std::pair<at::ScalarType, std::vector<int64_t>> parse_tensor_meta(std::string_view text) {
  PackedTensorMeta note;
  const bool right = text.size() == sizeof note;
  if (right) std::memcpy(&note, text.data(), sizeof note);
  if (!right || note.dtype >= static_cast<uint8_t>(at::ScalarType::Undefined) ||
      note.dimensions > PackedTensorMeta::kMaxDimensions ||
      std::any_of(note.sizes, note.sizes + note.dimensions, [](int64_t size) { return size < 0; }))
    throw CommError(Errc::kMismatch,
                    "protocol error: a peer rank sent tensor metadata that this version cannot "
                    "parse (" +
                        std::to_string(text.size()) +
                        " bytes); all ranks must run the same versions of torchcomms and torch");
  return {static_cast<at::ScalarType>(note.dtype),
          std::vector<int64_t>(note.sizes, note.sizes + note.dimensions)};
}

void require_addressable_size(size_t size_bytes, size_t slots) {
  const auto limit = static_cast<size_t>(std::numeric_limits<int64_t>::max() / 2);
  if (size_bytes > limit || slots > limit / sizeof(uint64_t))
    throw CommError(Errc::kTooLarge, std::to_string(size_bytes) + " bytes and " +
                                         std::to_string(slots) + " slots exceed the address space");
}

uint64_t put_offset_bytes(const at::Tensor& tensor, size_t offset_nelems, int rank,
                          uint64_t room_bytes) {
  const uint64_t unit = tensor.element_size(), bytes = tensor.nbytes();
  if (offset_nelems > room_bytes / unit || bytes > room_bytes - offset_nelems * unit)
    throw CommError(Errc::kOutOfRange,
                    std::to_string(tensor.numel()) + " elements of " + std::to_string(unit) +
                        " bytes at offset " + std::to_string(offset_nelems) +
                        " do not fit: the window of rank " + std::to_string(rank) + " has " +
                        std::to_string(room_bytes) + " bytes");
  return offset_nelems * unit;
}

uint64_t view_offset_bytes(at::IntArrayRef sizes, at::ScalarType dtype, int64_t offset_nelems,
                           int rank, uint64_t room_bytes) {
  const auto unit = static_cast<int64_t>(c10::elementSize(dtype));
  const auto room = static_cast<int64_t>(room_bytes);
  int64_t end = 1;
  bool fits = true;
  for (const auto size : sizes) fits = fits && !__builtin_mul_overflow(end, size, &end);
  fits = fits && !__builtin_add_overflow(end, offset_nelems, &end) && end <= room / unit;
  if (!fits)
    throw CommError(Errc::kOutOfRange,
                    "sizes and offset " + std::to_string(offset_nelems) + ", in elements of " +
                        std::to_string(unit) + " bytes, do not fit: the window of rank " +
                        std::to_string(rank) + " has " + std::to_string(room) + " bytes");
  return static_cast<uint64_t>(offset_nelems * unit);
}

void require_slot(size_t slot, int rank, uint64_t slots) {
  if (slot >= slots)
    throw CommError(Errc::kOutOfRange, "signal_disp is " + std::to_string(slot) + ", but rank " +
                                           std::to_string(rank) + " has " + std::to_string(slots) +
                                           " slots");
}

CommError stale_window_error(const Context& context) {
  return {Errc::kStaleGeneration,
          "the communicator was reconfigured, so this window has no connection to its peers; "
          "deregister its tensor, and register it again",
          context};
}

}  // namespace torch::comms
