#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "schedule/action.hpp"

namespace torch::comms::schedule {

// How a buffer is split into consecutive blocks, usually one per rank. It is a small value that is
// cheap to copy.
class Blocks {
 public:
  Blocks() = default;

  // `total` elements in `parts` blocks; the first total % parts blocks have one element more.
  static Blocks even(int64_t total, int parts);
  // `each` elements in each of `parts` blocks.
  static Blocks equal(int64_t each, int parts) { return even(each * parts, parts); }
  // Block i is [offsets[i], offsets[i + 1]). Offsets begin with 0 and never decrease. Reads all of
  // them once.
  // Lifetime: the offsets must outlive every use of the blocks.
  static Blocks from_offsets(std::span<const int64_t> offsets);

  int parts() const noexcept { return parts_; }
  int64_t total() const noexcept { return begin(parts_); }
  int64_t largest() const noexcept { return largest_; }
  int64_t smallest() const noexcept { return smallest_; }
  // Returns: whether the blocks were made so that all have the same count, whatever the total is.
  // All ranks agree on it even if each knows only its own counts, because it does not depend on the
  // values.
  bool equal() const noexcept { return offsets_ == nullptr && extra_ == 0; }
  // Equal if the boundaries and equal() are the same.
  friend bool operator==(const Blocks& a, const Blocks& b) noexcept {
    if (a.parts_ != b.parts_ || a.largest_ != b.largest_ || a.equal() != b.equal()) return false;
    if (a.offsets_ == nullptr && b.offsets_ == nullptr)
      return a.each_ == b.each_ && a.extra_ == b.extra_;
    for (int i = 1; i <= a.parts_; ++i)
      if (a.begin(i) != b.begin(i)) return false;
    return true;
  }

  // Returns: the first element of block i; begin(parts()) is the end of the last block.
  int64_t begin(int i) const noexcept {
    return offsets_ != nullptr ? offsets_[i] : i * each_ + std::min<int64_t>(i, extra_);
  }
  int64_t count(int i) const noexcept { return begin(i + 1) - begin(i); }
  // Returns: elements of blocks [i, j).
  int64_t count(int i, int j) const noexcept { return begin(j) - begin(i); }
  // Returns: elements of `n` blocks from `first` on; block 0 follows the last one. n <= parts().
  int64_t count_around(int first, int n) const noexcept;

  Range in(Buffer buffer, int i) const noexcept { return {buffer, begin(i), count(i)}; }
  // Returns: the range of blocks [i, j).
  Range in(Buffer buffer, int i, int j) const noexcept { return {buffer, begin(i), count(i, j)}; }
  // Returns: the ranges of `n` blocks from `first` on, in order; block 0 follows the last one. The
  // second range is empty if one suffices.
  std::array<Range, 2> around(Buffer buffer, int first, int n) const noexcept;

 private:
  int parts_ = 0;
  int64_t each_ = 0, extra_ = 0;
  int64_t largest_ = 0, smallest_ = 0;
  const int64_t* offsets_ = nullptr;
};

// How a vector is split into chunks of `chunk` elements (the last one is shorter) for a pipeline.
// There is always at least one chunk, which may be empty.
class Chunks {
 public:
  // One chunk if chunk <= 0 or chunk > total.
  Chunks(int64_t total, int64_t chunk) noexcept
      : total_(total),
        chunk_(std::min(chunk > 0 ? chunk : total, total)),
        number_(chunk_ > 0 ? (total - 1) / chunk_ + 1 : 1) {}

  int64_t count() const noexcept { return number_; }
  // Returns: chunk `number`; empty for a number outside of [0, count()), before a pipeline fills
  // and after it drains.
  Range in(Buffer buffer, int64_t number) const noexcept { return of({buffer, 0, total_}, number); }
  // Returns: chunk `number` of a range that begins elsewhere or is shorter.
  Range of(Range whole, int64_t number) const noexcept;

 private:
  int64_t total_, chunk_, number_;
};

}  // namespace torch::comms::schedule
