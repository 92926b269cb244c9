#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// One line of words, read from left to right. Throws CommError(kInvalidArgument) naming source,
// line and field.
namespace torch::comms::ctran {

class FieldParser {
 public:
  FieldParser(const std::string& source, size_t line, std::string_view text)
      : source_(source), line_(line), rest_(text) {}

  // The next word; there must be one. `field` is its name in errors.
  std::string_view word(std::string_view field, std::string_view allowed);
  // The next word is `expected`.
  void literal(std::string_view expected);
  // Whether the next word is `wanted`, which is read then.
  bool try_literal(std::string_view wanted) noexcept;
  // A number in [0, most].
  double number(std::string_view field, double most);
  int64_t integer(std::string_view field, int64_t most);
  struct IntegerRange {
    int64_t first = 0, last = 0;
  };
  // "2..4", inclusive, in [least, most], not falling.
  IntegerRange integer_range(std::string_view field, int64_t least, int64_t most);
  // Nothing is left.
  void require_end();

  [[noreturn]] void fail(std::string_view field, std::string_view found,
                         std::string_view allowed) const;

 private:
  const std::string& source_;
  size_t line_;
  std::string_view rest_;
};

}  // namespace torch::comms::ctran
