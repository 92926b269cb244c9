#include "schedule/patterns/blocks.hpp"

namespace torch::comms::schedule {

Blocks Blocks::even(int64_t total, int parts) {
  Blocks blocks;
  blocks.parts_ = parts;
  blocks.each_ = total / parts;
  blocks.extra_ = total % parts;
  blocks.smallest_ = blocks.each_;
  blocks.largest_ = blocks.each_ + (blocks.extra_ > 0 ? 1 : 0);
  return blocks;
}

Blocks Blocks::from_offsets(std::span<const int64_t> offsets) {
  Blocks blocks;
  blocks.parts_ = static_cast<int>(offsets.size()) - 1;
  blocks.offsets_ = offsets.data();
  blocks.largest_ = blocks.smallest_ = blocks.count(0);
  for (int i = 1; i < blocks.parts_; ++i) {
    blocks.largest_ = std::max(blocks.largest_, blocks.count(i));
    blocks.smallest_ = std::min(blocks.smallest_, blocks.count(i));
  }
  return blocks;
}

std::array<Range, 2> Blocks::around(Buffer buffer, int first, int n) const noexcept {
  const int beyond = std::max(0, first + n - parts_);
  return {in(buffer, first, first + n - beyond), in(buffer, 0, beyond)};
}

int64_t Blocks::count_around(int first, int n) const noexcept {
  const auto [before, beyond] = around(Buffer::kInput, first, n);
  return before.count + beyond.count;
}

Range Chunks::of(Range whole, int64_t number) const noexcept {
  if (number < 0) return {whole.buffer, whole.begin, 0};
  if (number >= number_) return {whole.buffer, whole.begin + whole.count, 0};
  const int64_t begin = std::min(whole.count, number * chunk_);
  return {whole.buffer, whole.begin + begin, std::min(chunk_, whole.count - begin)};
}

}  // namespace torch::comms::schedule
