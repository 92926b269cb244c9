#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace torch::comms::transport {

// A FIFO queue with access by index. It needs one allocation while it has elements and none before.
// There may be many empty queues, and an empty std::deque takes half a kilobyte.
template <class T>
class CompactQueue {
 public:
  bool empty() const noexcept { return begin_ == slots_.size(); }
  size_t size() const noexcept { return slots_.size() - begin_; }
  T& operator[](size_t index) noexcept { return slots_[begin_ + index]; }
  const T& operator[](size_t index) const noexcept { return slots_[begin_ + index]; }
  std::span<const T> all() const noexcept { return std::span(slots_).subspan(begin_); }

  void push_back(T value) { slots_.push_back(value); }
  // Takes constant time on average: the memory of removed elements is reused when they are half of
  // all.
  void pop_front() noexcept {
    ++begin_;
    if (begin_ == slots_.size()) {
      clear();
    } else if (begin_ >= kFew && 2 * begin_ >= slots_.size()) {
      slots_.erase(slots_.begin(), slots_.begin() + static_cast<std::ptrdiff_t>(begin_));
      begin_ = 0;
    }
  }
  void clear() noexcept {
    begin_ = 0;
    if (slots_.capacity() > kFew)
      std::vector<T>().swap(slots_);
    else
      slots_.clear();
  }

 private:
  static constexpr size_t kFew = 32;
  std::vector<T> slots_;
  size_t begin_ = 0;
};

}  // namespace torch::comms::transport
