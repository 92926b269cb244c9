#include "hooks/document_writer.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/text/utf8.hpp"

namespace torch::comms::fr {
namespace {

template <class T>
void append_number(std::string& out, T value) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}

template <class T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  out_ += bracket;
  first_ = false;
}

void JsonWriter::quote(std::string_view value) {
  constexpr const char* kHex = "0123456789abcdef";
  out_ += '"';
  for (const char c : base::replace_invalid_utf8(value)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (byte < 0x20) {
      out_ += "\\u00";
      out_ += kHex[byte >> 4];
      out_ += kHex[byte & 15];
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_ += ':';
  first_ = true;
}

void JsonWriter::pair(std::string_view first, std::string_view second) {
  begin_list();
  text(first);
  text(second);
  end_list();
}

void JsonWriter::text(std::string_view value) {
  separate();
  quote(value);
}

void JsonWriter::number(int64_t value) {
  separate();
  append_number(out_, value);
}

void JsonWriter::real(double value) {
  separate();
  append_number(out_, std::isfinite(value) ? value : 0.0);
}

void JsonWriter::flag(bool value) {
  separate();
  out_ += value ? "true" : "false";
}

void PickleWriter::pair(std::string_view first, std::string_view second) {
  text(first);
  text(second);
  out_ += '\x86';
}

void PickleWriter::text(std::string_view value) {
  const std::string valid = base::replace_invalid_utf8(value);
  out_ += 'X';
  append_little_endian(out_, static_cast<uint32_t>(valid.size()));
  out_ += valid;
}

void PickleWriter::number(int64_t value) {
  out_ += '\x8a';
  out_ += '\x08';
  append_little_endian(out_, static_cast<uint64_t>(value));
}

void PickleWriter::real(double value) {
  out_ += 'G';
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>((bits >> shift) & 0xff);
}

void PickleWriter::time(int64_t value_ns) {
  if (value_ns != 0)
    number(value_ns);
  else
    out_ += 'N';
}

}  // namespace torch::comms::fr
