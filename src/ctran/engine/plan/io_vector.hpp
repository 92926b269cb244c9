#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/protocol/request.hpp"

namespace torch::comms::ctran {

// A buffer that consists of several pieces, one after the other.
class IoVector {
 public:
  // Replaces the pieces; empty ones are dropped. Does not free its own memory. A buffer that is
  // only read may be given as constant bytes.
  template <class Piece>
  void assign(std::span<const Piece> pieces) {
    pieces_.clear();
    ends_.clear();
    uint64_t end = 0;
    for (const auto& piece : pieces) {
      if (piece.empty()) continue;
      end += piece.size();
      pieces_.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
      ends_.push_back(end);
    }
  }
  void assign(transport::Bytes whole) { assign(std::span<const transport::Bytes>(&whole, 1)); }

  uint64_t bytes() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  std::span<const transport::Bytes> pieces() const noexcept { return pieces_; }

  // Returns: the bytes from `begin` to the end of its piece. `begin` must be inside the buffer.
  transport::Bytes from(uint64_t begin) const noexcept {
    const auto i = index(begin);
    return pieces_[i].subspan(pieces_[i].size() - (ends_[i] - begin));
  }
  // Appends the pieces of [begin, begin + bytes) to `list`.
  template <class Piece>
  void append(uint64_t begin, uint64_t bytes, std::vector<Piece>& list) const {
    while (bytes > 0) {
      const auto rest = from(begin);
      const auto part = rest.first(std::min<uint64_t>(rest.size(), bytes));
      list.push_back(part);
      begin += part.size();
      bytes -= part.size();
    }
  }

 private:
  size_t index(uint64_t begin) const noexcept {
    if (ends_.size() == 1) return 0;
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  }
  std::vector<transport::Bytes> pieces_;  // none is empty
  std::vector<uint64_t> ends_;
};

}  // namespace torch::comms::ctran
