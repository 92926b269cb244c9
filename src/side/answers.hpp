#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "side/whereabouts.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::side {

// What a rank says when it is asked about the collective of some number.
struct Answer {
  enum class State : uint64_t { kHere, kClosed, kLost, kElsewhere };
  State state = State::kHere;
  Whereabouts place = {};
  // What it called as that number, and before, back from there; a sequence of 0 where it has not.
  // A call that moves nothing to a rank may be over there, and be missed in a later one.
  static constexpr size_t kPrints = 4;
  std::array<Fingerprint, kPrints> prints = {};

  friend bool operator==(const Answer& a, const Answer& b) noexcept;
};

// The answers of many ranks, those that are alike as one: as long as programs are in step, those of
// 100,000 ranks are a few hundred bytes. What is told apart is bounded, too: of more than
// kMostKinds the rest only counts as elsewhere.
class Answers {
 public:
  static constexpr size_t kMostKinds = 64;

  void add(int rank, const Answer& answer);
  // A rank that is in both counts as here.
  void merge(const Answers& others);
  void clear() noexcept { kinds_.clear(); }

  // Who is where, of a group of `size` ranks that were asked about collective `number`.
  Sighting sighting(int size, uint64_t number, std::chrono::milliseconds waited) const;
  // By rank, of those that have called `number`.
  std::unordered_map<int, Fingerprint> prints(uint64_t number) const;

  void write(transport::ByteWriter& writer) const;
  // Throws CommError(kMismatch) for what no rank of such a group wrote.
  static Answers read(transport::ByteReader& reader, int size);

 private:
  struct Range {
    int32_t first = 0, last = 0;
  };
  struct Kind {
    Answer answer;
    std::vector<Range> ranks;  // ascending, apart from each other
  };
  Kind& kind_of(const Answer& answer);
  static void join(std::vector<Range>& into, const std::vector<Range>& more);
  template <class Body>
  void for_each(const Body& body) const;

  std::vector<Kind> kinds_;
};

}  // namespace torch::comms::side
