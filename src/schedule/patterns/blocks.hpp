#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "schedule/action.hpp"

namespace torch::comms::schedule {

// How a buffer is cut into consecutive blocks, usually one a rank. A small value; copying it is
// free.
class Blocks {
 public:
  Blocks() = default;

  // `total` elements in `parts` blocks; the first total % parts have one more than the others.
  static Blocks even(int64_t total, int parts);
  // `each` elements in each of `parts` blocks.
  static Blocks equal(int64_t each, int parts) { return even(each * parts, parts); }
  // Block i is [offsets[i], offsets[i + 1]); offsets begin with 0 and do not fall. Borrowed: they
  // outlive every use. Reads all of them once.
  static Blocks from_offsets(std::span<const int64_t> offsets);

  int parts() const noexcept { return parts_; }
  int64_t total() const noexcept { return begin(parts_); }
  int64_t largest() const noexcept { return largest_; }
  int64_t smallest() const noexcept { return smallest_; }
  // All blocks have the same count, whatever the total is: not by chance, but by how they were
  // made, so that all ranks agree even where each knows only its own counts.
  bool equal() const noexcept { return offsets_ == nullptr && extra_ == 0; }
  // The same cuts, and constant_time_equal() for both or for none.
  friend bool operator==(const Blocks& a, const Blocks& b) noexcept {
    if (a.parts_ != b.parts_ || a.largest_ != b.largest_ || a.equal() != b.equal()) return false;
    if (a.offsets_ == nullptr && b.offsets_ == nullptr)
      return a.each_ == b.each_ && a.extra_ == b.extra_;
    for (int i = 1; i <= a.parts_; ++i)
      if (a.begin(i) != b.begin(i)) return false;
    return true;
  }

  // Where block i begins; i == parts() is the end of the last one.
  int64_t begin(int i) const noexcept {
    return offsets_ != nullptr ? offsets_[i] : i * each_ + std::min<int64_t>(i, extra_);
  }
  int64_t count(int i) const noexcept { return begin(i + 1) - begin(i); }
  // Of blocks [i, j).
  int64_t count(int i, int j) const noexcept { return begin(j) - begin(i); }
  // Of `n` blocks from `first` on, going on at block 0 after the last one; n <= parts().
  int64_t count_around(int first, int n) const noexcept;

  Range in(Buffer buffer, int i) const noexcept { return {buffer, begin(i), count(i)}; }
  // Blocks [i, j).
  Range in(Buffer buffer, int i, int j) const noexcept { return {buffer, begin(i), count(i, j)}; }
  // `n` blocks from `first` on around, in order: up to two ranges, the second one empty if one will
  // do.
  std::array<Range, 2> around(Buffer buffer, int first, int n) const noexcept;

 private:
  int parts_ = 0;
  int64_t each_ = 0, extra_ = 0;
  int64_t largest_ = 0, smallest_ = 0;
  const int64_t* offsets_ = nullptr;
};

// How a vector is cut into pieces of `chunk` elements (the last one shorter) that follow each other
// through a pipeline. There is always at least one chunk, which may be empty.
class Chunks {
 public:
  // chunk <= 0, or more than there is: one chunk.
  Chunks(int64_t total, int64_t chunk) noexcept
      : total_(total),
        chunk_(std::min(chunk > 0 ? chunk : total, total)),
        number_(chunk_ > 0 ? (total - 1) / chunk_ + 1 : 1) {}

  int64_t count() const noexcept { return number_; }
  // Empty for a number outside of [0, count()): before a pipeline fills and after it ran dry.
  Range in(Buffer buffer, int64_t number) const noexcept { return of({buffer, 0, total_}, number); }
  // The same cuts in a range that begins elsewhere or is shorter.
  Range of(Range whole, int64_t number) const noexcept;

 private:
  int64_t total_, chunk_, number_;
};

}  // namespace torch::comms::schedule
