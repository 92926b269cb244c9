#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ctran/kernels/library.hpp"

// Tables of who runs an operation, and how: rows of what was measured, or else of what a model
// says. The first row that fits counts. std only.
namespace torch::comms::ctran::kernels {

// Elements by what it takes to add them.
enum class Kind : uint8_t { kAny, kFloat, kInteger };
// Whether an operation is captured.
enum class Mode : uint8_t { kAny, kEager, kGraph };

// Whether its tensors are in windows, and hint registered says so of all ranks.
enum class Memory : uint8_t { kAny, kPlain, kRegistered };

template <class T>
struct Range {  // inclusive
  T first, last;

  constexpr bool has(T value) const noexcept { return first <= value && value <= last; }
  bool operator==(const Range&) const = default;
};

struct Row {
  Collective collective;
  Range<int> ranks;
  Range<size_t> bytes;  // of the largest buffer of a rank
  Algorithm algorithm;  // kAutomatic: as the library of kernels thinks best
  int blocks;           // at most; 0: the same
  Kind kind = Kind::kAny;
  Mode mode = Mode::kAny;
  bool by_library = false;  // of a vendor, where there is one: then the row has no algorithm
  bool on_region = false;   // as regions.hpp has it, of kRegistered: the same
  Memory memory = Memory::kAny;
  int within = 0;  // of operations that may have so many blocks at most; 0: of all

  bool operator==(const Row&) const = default;
};

// What a row is found by. Alike on all ranks.
struct Question {
  Collective collective;
  int ranks;
  size_t bytes;
  Kind kind;
  Mode mode;
  Memory memory = Memory::kAny;
  int within = 0;  // blocks that it may have; 0: any number
};

constexpr bool fits(const Row& row, const Question& question) noexcept {
  return row.collective == question.collective && row.ranks.has(question.ranks) &&
         row.bytes.has(question.bytes) && (row.kind == Kind::kAny || row.kind == question.kind) &&
         (row.mode == Mode::kAny || row.mode == question.mode) &&
         (row.memory == Memory::kAny || row.memory == question.memory) &&
         (row.within == 0 || (question.within > 0 && question.within <= row.within));
}
// Blocks of a row, 0 for as many as the kernels think best, where no more than `within` may be had.
constexpr int blocks_within(int blocks, int within) noexcept {
  return within == 0 ? blocks : blocks == 0 ? within : std::min(blocks, within);
}

// The first that fits and that `accepts(row)` says yes to; null: none.
template <class Accepts>
constexpr const Row* find(std::span<const Row> rows, const Question& question,
                          const Accepts& accepts) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
    return fits(row, question) && accepts(row);
  });
  return found == rows.end() ? nullptr : &*found;
}

// How many parts of Call::count the largest buffer of a rank has: one for each rank, unless all of
// them have the whole.
constexpr size_t parts_of(Collective collective, int ranks) noexcept {
  const bool is_whole = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                        collective == Collective::kBroadcast || collective == Collective::kBarrier;
  return is_whole ? 1 : static_cast<size_t>(ranks);
}

// Of a call; kAny where it adds nothing.
Kind kind_of(const Call& call) noexcept;

// As tables that users read and write have them: "one_shot_ll", or "automatic"; torch's word,
// "all_gather_single"; "any", "float" or "integer"; "any", "eager" or "graph"; "any", "plain" or
// "registered".
std::string_view name_of(Algorithm algorithm) noexcept;
std::string_view name_of(Collective collective) noexcept;
std::string_view name_of(Kind kind) noexcept;
std::string_view name_of(Mode mode) noexcept;
std::string_view name_of(Memory memory) noexcept;
inline constexpr int kKinds = 3, kModes = 3, kMemories = 3;

}  // namespace torch::comms::ctran::kernels
