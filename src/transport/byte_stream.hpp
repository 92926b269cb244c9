#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <torchcomms/base/error.hpp>

// Serialization of numbers and texts as little-endian bytes; all supported machines are
// little-endian.
namespace torch::comms::transport {

static_assert(std::endian::native == std::endian::little);

// Appends numbers, texts and lists to a string of bytes.
class ByteWriter {
 public:
  ByteWriter() { bytes_.reserve(96); }  // bytes; enough for most messages

  template <class T>
    requires std::is_trivially_copyable_v<T>
  ByteWriter& add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  ByteWriter& text(std::string_view value) {
    if (value.size() > UINT16_MAX)
      throw CommError(Errc::kTooLarge, "cannot serialize a text of " +
                                           std::to_string(value.size()) +
                                           " bytes: at most 65535 bytes are allowed");
    add(static_cast<uint16_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  // Appends the first `most` values, or all if there are fewer.
  template <class T>
  ByteWriter& list(const std::vector<T>& values, size_t most) {
    const size_t count = std::min(values.size(), most);
    add(static_cast<uint16_t>(count));
    for (size_t i = 0; i < count; ++i) add(values[i]);
    return *this;
  }
  std::string release() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what ByteWriter wrote.
// Throws: CommError(kMismatch) that names `what`, if the bytes end too early.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T number() {
    std::array<char, sizeof(T)> raw{};
    std::ranges::copy(cut(sizeof(T)), raw.begin());
    return std::bit_cast<T>(raw);
  }
  std::string text() { return std::string(cut(number<uint16_t>())); }
  template <class T>
  std::vector<T> list() {
    const size_t count = number<uint16_t>();
    require(count * sizeof(T) <= bytes_.size(), "truncated list");
    std::vector<T> values(count);
    for (auto& value : values) value = number<T>();
    return values;
  }
  std::string rest() { return std::string(cut(bytes_.size())); }
  bool is_at_end() const noexcept { return bytes_.empty(); }
  void require(bool right, const char* else_what) const {
    if (!right) throw CommError(Errc::kMismatch, std::string(what_) + ": " + else_what);
  }

 private:
  std::string_view cut(size_t size) {
    require(size <= bytes_.size(), "truncated");
    const auto head = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return head;
  }
  std::string_view bytes_, what_;
};

}  // namespace torch::comms::transport
