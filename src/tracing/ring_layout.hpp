#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/op_record.hpp"
#include "base/text/utf8.hpp"

// The memory layout of an event ring and of its file: a header, the communicator rows, the event
// slots. It is little-endian. Other processes read it while it is written;
// python/torchcomms/analyze/ring.py knows the offsets asserted here. Increase kLayoutVersion with
// every change.
namespace torch::comms::tracing {

inline constexpr std::array<char, 8> kMagic = {'T', 'C', 'R', 'I', 'N', 'G', '\n', 0};
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr size_t kCommRows = 256;

// Copies as much of `text` as fits, in whole characters, and fills up with zeroes.
template <size_t kSize>
void copy_truncated(std::array<char, kSize>& out, std::string_view text) noexcept {
  out.fill(0);
  std::ranges::copy(base::utf8_prefix(text, kSize - 1), out.begin());
}

enum class EventPhase : uint8_t { kBegin = 0, kEnd = 1 };

inline constexpr uint8_t kOtherError = 0xff;  // TraceEvent::error of other exceptions

// The begin or the end of one operation.
struct TraceEvent {
  uint64_t time_ns = 0;  // steady clock
  uint32_t thread = 0;   // kernel thread id
  EventPhase phase = EventPhase::kBegin;
  bool ok = true;     // of an end: whether the operation succeeded
  uint8_t error = 0;  // of a failed end: Errc + 1, or kOtherError
  base::OpRecord op;
  uint64_t started_ns = 0;  // of a begin: when the operation left its queue; 0: it was not queued
};
static_assert(sizeof(base::OpRecord) == 64 && offsetof(base::OpRecord, comm) == 8 &&
              offsetof(base::OpRecord, peers) == 12 && offsetof(base::OpRecord, sequence) == 16 &&
              offsetof(base::OpRecord, matching_sequence) == 56);
static_assert(sizeof(TraceEvent) == 88 && offsetof(TraceEvent, op) == 16 &&
              offsetof(TraceEvent, started_ns) == 80);

// The header of a ring.
struct RingHeader {
  std::array<char, 8> magic{};  // kMagic once all else is written
  uint32_t version = kLayoutVersion;
  uint32_t header_bytes = 0, row_bytes = 0, rows = 0, slot_bytes = 0, slots = 0;
  int64_t pid = 0;
  uint64_t began_ns = 0;  // steady clock; began_wall_ns is the wall clock at the same time
  int64_t began_wall_ns = 0;
  std::atomic<uint64_t> next{0};      // number of events so far
  std::atomic<uint64_t> skipped{0};   // number of events not written
  std::atomic<uint64_t> ended_ns{0};  // when the process exited normally; 0: it has not
  std::atomic<int32_t> rank{-1};      // in the first connected communicator
  // The number of multi-rank communicators that were not finalized, or are being made.
  std::atomic<int32_t> open_communicators{0};
  uint64_t inode = 0;  // of the file; a file with another inode is a copy
  // The signal on which the process writes its Python stacks to this descriptor; 0: none.
  std::atomic<int32_t> stack_signal{0}, stack_descriptor{-1};
  std::array<char, 40> boot{};  // boot id of the kernel, whose steady clock is used
  std::array<char, 64> host{};
  std::array<char, 128> job{};
  std::array<char, 256> command{};
  // The meaning of numbers: lines of words, "ops send recv ...", so that a reader needs no library.
  std::array<char, 3504> vocabulary{};
};
static_assert(sizeof(RingHeader) == 4096 && offsetof(RingHeader, pid) == 32 &&
              offsetof(RingHeader, next) == 56 && offsetof(RingHeader, rank) == 80 &&
              offsetof(RingHeader, boot) == 104 && offsetof(RingHeader, vocabulary) == 592);

// Some members of a communicator: start, start + stride, ..., `count` of them.
struct RankRun {
  int32_t start = 0, stride = 1, count = 0;
  friend bool operator==(const RankRun&, const RankRun&) = default;
};

// A communicator in the ring.
struct CommRow {
  // kInitializing: an init record, until its communicator has been made; it has no events. kSplit:
  // an init record of a split().
  static constexpr uint32_t kHasMembership = 1, kFinalized = 2, kUnknownMembers = 4,
                            kInitializing = 8, kSplit = 16;

  std::atomic<uint64_t> key{0};  // id + 1; 0: empty, or being written
  uint64_t time_ns = 0;          // when it was connected, or its init began
  std::atomic<uint64_t> ended_ns{0};
  // Numbers of the last collective that began and ended on this rank; they outlive the events.
  std::atomic<uint64_t> last_started{0}, last_completed{0};
  int64_t membership = 0;
  std::atomic<uint32_t> flags{0};
  int32_t rank = -1, size = -1;
  uint32_t runs_used = 0;
  // Shared by the members and unique to this communicator; 0: unknown.
  uint64_t identity = 0;
  std::array<char, 168> name{};  // truncated if longer
  std::array<char, 32> backend{};
  std::array<RankRun, 20> runs{};
};
static_assert(sizeof(CommRow) == 512 && offsetof(CommRow, last_started) == 24 &&
              offsetof(CommRow, flags) == 48 && offsetof(CommRow, identity) == 64 &&
              offsetof(CommRow, name) == 72 && offsetof(CommRow, backend) == 240 &&
              offsetof(CommRow, runs) == 272);

// An event. `stamp` is 2 * index + 1 while the event `index` is written, and 2 * index + 2 once it
// is complete. The payload consists of atomic words, so that a race of a reader and a writer is
// defined behavior. The reader checks the stamp and drops data that changed meanwhile.
struct alignas(128) EventSlot {
  static constexpr size_t kWords = 15;
  std::atomic<uint64_t> stamp{0};
  std::array<std::atomic<uint64_t>, kWords> words{};
};
static_assert(sizeof(EventSlot) == 128 &&
              sizeof(TraceEvent) <= EventSlot::kWords * sizeof(uint64_t));
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

}  // namespace torch::comms::tracing
