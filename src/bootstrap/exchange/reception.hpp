#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "bootstrap/exchange/exchange.hpp"
#include "bootstrap/exchange/frame.hpp"

namespace torch::comms::bootstrap {

// The connections that have not said yet who they are: of ranks, port scans, other jobs, anything.
// Each gets the memory of one header and a little time; of many the oldest gives way, so that a
// crowd of silent ones cannot keep a rank out. Without any input or output.
class TC_API Reception {
 public:
  struct Rules {
    size_t guests = 64;
    Moment patience = std::chrono::seconds(5);
  };
  Reception(const Door& door, const Rules& rules) : door_(door), rules_(rules) {}

  using Links = std::vector<uint32_t>;
  // A connection came. Appends those to be closed for it.
  void on_open(uint32_t link, Moment now, Links& close);
  enum class Answer : uint8_t { kNotYet, kComeIn, kClose };
  // A guest said something. kComeIn: it is question()'s sender, and no guest any more; bytes after
  // the question are dropped, for a rank says no more before it is answered. kClose: counted.
  Answer on_bytes(uint32_t link, std::string_view bytes);
  void on_closed(uint32_t link);
  // Appends those that have been silent for too long.
  void on_time(Moment now, Links& close);
  Moment next_time() const noexcept;

  const Frame& question() const noexcept { return question_; }
  size_t guests() const noexcept { return guests_.size(); }
  uint64_t refused(Refusal why) const noexcept { return counts_[static_cast<size_t>(why)]; }
  void count(Refusal why) noexcept { ++counts_[static_cast<size_t>(why)]; }
  // "dropped 12 connections: 10 not ours, 2 too slow"; empty if there were none.
  std::string counts() const;

 private:
  struct Guest {
    uint32_t link = 0;
    Moment since{};
    size_t have = 0;
    Frame frame = {};
  };
  std::vector<Guest>::iterator find(uint32_t link);

  Door door_;
  Rules rules_;
  std::vector<Guest> guests_;  // the oldest first
  std::array<uint64_t, kRefusals> counts_{};
  Frame question_;
};

}  // namespace torch::comms::bootstrap
