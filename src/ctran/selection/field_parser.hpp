#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Parses one line of words from left to right.
// Throws: CommError(kInvalidArgument), which names source, line and field.
namespace torch::comms::ctran {

class FieldParser {
 public:
  FieldParser(const std::string& source, size_t line, std::string_view text)
      : source_(source), line_(line), rest_(text) {}

  // Reads the next word; there must be one. `field` is its name in errors.
  std::string_view word(std::string_view field, std::string_view allowed);
  // Reads the next word, which must be `expected`.
  void literal(std::string_view expected);
  // Reads the next word if it is `wanted`.
  // Returns: whether it was read.
  bool try_literal(std::string_view wanted) noexcept;
  // Reads a number in [0, most].
  double number(std::string_view field, double most);
  int64_t integer(std::string_view field, int64_t most);
  struct IntegerRange {
    int64_t first = 0, last = 0;
  };
  // Reads an inclusive range such as "2..4" in [least, most], where first <= last.
  IntegerRange integer_range(std::string_view field, int64_t least, int64_t most);
  // Checks that nothing is left.
  void require_end();

  [[noreturn]] void fail(std::string_view field, std::string_view found,
                         std::string_view allowed) const;

 private:
  const std::string& source_;
  size_t line_;
  std::string_view rest_;
};

}  // namespace torch::comms::ctran
