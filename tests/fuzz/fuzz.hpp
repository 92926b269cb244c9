#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

// What the fuzz targets share. Each defines LLVMFuzzerTestOneInput(), which libFuzzer calls with
// bytes that it makes up; a crash, a report of a sanitizer or a broken require() is a finding.
namespace torch::comms::fuzz {

inline void require(bool right) {
  if (!right) std::abort();
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes values off the front of the input; zeroes where it has ended.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(text_of(data, size)) {}
  template <class T>
  T take() {
    T value{};
    const auto bytes = take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::string_view take(size_t most) {
    const auto head = left_.substr(0, most);
    left_.remove_prefix(head.size());
    return head;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace torch::comms::fuzz
