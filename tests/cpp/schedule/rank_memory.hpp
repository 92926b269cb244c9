#pragma once

#include <array>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "schedule/interpreter.hpp"

namespace torch::comms::schedule {

// What ends a run: becomes HangReport::failure.
struct BrokenRule : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string to_string(const Range& range);

// The three buffers of one rank, which share memory when the operation is in place.
class RankMemory {
 public:
  RankMemory(const Problem& problem, int64_t scratch, bool in_place);

  // Throws BrokenRule when the range does not lie in its buffer.
  std::span<Cell> write(const Range& range) { return {cells_.data() + at(range), size_of(range)}; }
  // Throws BrokenRule also when a cell was never written.
  std::span<const Cell> read(const Range& range) const;

  // Throws BrokenRule when transfers of one step get in each other's way.
  void check_transfers(std::span<const Action> transfers) const;
  // Throws BrokenRule when an operand overlaps the target without being it.
  void check_operands(const Action& action) const;

  // Throws BrokenRule when an input of its own was written to.
  void check_input() const;
  std::vector<Cell> output() const;

 private:
  struct Place {
    int64_t begin = 0, count = 0;
  };
  static size_t size_of(const Range& range) { return static_cast<size_t>(range.count); }
  // Where a range begins in cells_.
  int64_t at(const Range& range) const;

  const Problem* problem_;
  bool shared_ = false;
  std::array<Place, 3> places_;
  std::vector<Cell> cells_;
};

}  // namespace torch::comms::schedule
