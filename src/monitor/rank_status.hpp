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

// The reply of one rank to a query about a collective.
struct RankStatus {
  enum class State : uint64_t { kPresent, kClosed, kFailed, kOther };
  State state = State::kPresent;
  RankProgress progress = {};
  // The fingerprints of the collective in question and of those before it, backwards; a sequence of
  // 0 if not called. Earlier ones matter because a rank to which a call moves nothing may have
  // completed it.
  static constexpr size_t kFingerprints = 4;
  std::array<Fingerprint, kFingerprints> fingerprints = {};

  friend bool operator==(const RankStatus& a, const RankStatus& b) noexcept;
};

// The statuses of many ranks; equal ones are stored once, with rank intervals. While programs are
// in step, 100,000 ranks take a few hundred bytes. At most kMaxKinds different statuses are stored;
// the rest count as kOther.
class RankStatusSet {
 public:
  static constexpr size_t kMaxKinds = 64;

  void add(int rank, const RankStatus& status);
  // Adds the statuses of `other`. If a rank has several, kPresent wins.
  void merge(const RankStatusSet& other);
  bool is_empty() const noexcept { return kinds_.empty(); }

  // Returns the progress of a group of `size` ranks that were asked about collective `number`.
  ProgressReport progress_report(int size, uint64_t number, std::chrono::milliseconds waited) const;
  // Returns the fingerprints of the ranks that have called `number`, by rank.
  std::unordered_map<int, Fingerprint> fingerprints(uint64_t number) const;

  void write(transport::ByteWriter& writer) const;
  // Parses what write() wrote, for a group of at most `size` ranks. Throws: CommError(kMismatch).
  static RankStatusSet read(transport::ByteReader& reader, int size);

 private:
  struct RankInterval {
    int32_t first = 0, last = 0;
  };
  struct Kind {
    RankStatus status;
    std::vector<RankInterval> ranks;  // ascending, disjoint
  };
  Kind& kind_of(const RankStatus& status);
  static void join(std::vector<RankInterval>& into, const std::vector<RankInterval>& more);
  template <class Body>
  void for_each(const Body& body) const;

  std::vector<Kind> kinds_;
};

}  // namespace torch::comms::monitor
