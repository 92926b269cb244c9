#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "monitor/rank_progress.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::monitor {

// What a rank says when it is asked about the collective of some number.
struct RankStatus {
  enum class State : uint64_t { kPresent, kClosed, kFailed, kOther };
  State state = State::kPresent;
  RankProgress progress = {};
  // What it called as that number, and before, back from there; a sequence of 0 where it has not.
  // A call that moves nothing to a rank may be over there, and be missed in a later one.
  static constexpr size_t kFingerprints = 4;
  std::array<Fingerprint, kFingerprints> fingerprints = {};

  friend bool operator==(const RankStatus& a, const RankStatus& b) noexcept;
};

// The answers of many ranks, those that are alike as one: as long as programs are in step, those of
// 100,000 ranks are a few hundred bytes. What is told apart is bounded, too: of more than
// kMaxKinds the rest only counts as elsewhere.
class RankStatusSet {
 public:
  static constexpr size_t kMaxKinds = 64;

  void add(int rank, const RankStatus& answer);
  // A rank that is in both counts as here.
  void merge(const RankStatusSet& others);
  void clear() noexcept { kinds_.clear(); }

  // Who is where, of a group of `size` ranks that were asked about collective `number`.
  ProgressReport progress_report(int size, uint64_t number, std::chrono::milliseconds waited) const;
  // By rank, of those that have called `number`.
  std::unordered_map<int, Fingerprint> fingerprints(uint64_t number) const;

  void write(transport::ByteWriter& writer) const;
  // Throws CommError(kSizeMismatch) for what no rank of such a group wrote.
  static RankStatusSet read(transport::ByteReader& reader, int size);

 private:
  struct RankInterval {
    int32_t first = 0, last = 0;
  };
  struct Kind {
    RankStatus status;
    std::vector<RankInterval> ranks;  // ascending, apart from each other
  };
  Kind& kind_of(const RankStatus& answer);
  static void join(std::vector<RankInterval>& into, const std::vector<RankInterval>& more);
  template <class Body>
  void for_each(const Body& body) const;

  std::vector<Kind> kinds_;
};

}  // namespace torch::comms::monitor
