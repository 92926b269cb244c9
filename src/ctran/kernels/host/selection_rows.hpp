#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ctran/kernels/host/library.hpp"

// Tables of who runs an operation, and how: rows of what was measured, or else of what a model
// says. The first row that fits counts. std only.
namespace torch::comms::ctran::kernels {

// Elements by what it takes to add them.
enum class ElementKind : uint8_t { kAny, kFloat, kInteger };
// Whether an operation is captured.
enum class LaunchMode : uint8_t { kAny, kEager, kGraph };

// Whether its tensors are in windows, and hint registered says so of all ranks.
enum class TensorMemory : uint8_t { kAny, kPlain, kRegistered };

template <class T>
struct InclusiveRange {  // inclusive
  T first, last;

  constexpr bool contains(T value) const noexcept { return first <= value && value <= last; }
  bool operator==(const InclusiveRange&) const = default;
};

struct SelectionRow {
  Collective collective;
  InclusiveRange<int> ranks;
  InclusiveRange<size_t> bytes;  // of the largest buffer of a rank
  KernelAlgorithm algorithm;     // kAutomatic: as the library of kernels thinks best
  int blocks;                    // at most; 0: the same
  ElementKind kind = ElementKind::kAny;
  LaunchMode mode = LaunchMode::kAny;
  bool uses_vendor_library =
      false;  // of a vendor, where there is one: then the row has no algorithm
  bool uses_window_collective = false;  // as regions.hpp has it, of kRegistered: the same
  TensorMemory memory = TensorMemory::kAny;
  int block_limit = 0;  // of operations that may have so many blocks at most; 0: of all

  bool operator==(const SelectionRow&) const = default;
};

// What a row is found by. Alike on all ranks.
struct SelectionKey {
  Collective collective;
  int ranks;
  size_t bytes;
  ElementKind kind;
  LaunchMode mode;
  TensorMemory memory = TensorMemory::kAny;
  int block_limit = 0;  // blocks that it may have; 0: any number
};

constexpr bool matches(const SelectionRow& row, const SelectionKey& question) noexcept {
  return row.collective == question.collective && row.ranks.contains(question.ranks) &&
         row.bytes.contains(question.bytes) &&
         (row.kind == ElementKind::kAny || row.kind == question.kind) &&
         (row.mode == LaunchMode::kAny || row.mode == question.mode) &&
         (row.memory == TensorMemory::kAny || row.memory == question.memory) &&
         (row.block_limit == 0 ||
          (question.block_limit > 0 && question.block_limit <= row.block_limit));
}
// Blocks of a row, 0 for as many as the kernels think best, where no more than `within` may be had.
constexpr int blocks_within(int blocks, int within) noexcept {
  return within == 0 ? blocks : blocks == 0 ? within : std::min(blocks, within);
}

// The first that fits and that `accepts(row)` says yes to; null: none.
template <class Accepts>
constexpr const SelectionRow* find(std::span<const SelectionRow> rows, const SelectionKey& question,
                                   const Accepts& accepts) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const SelectionRow& row) {
    return matches(row, question) && accepts(row);
  });
  return found == rows.end() ? nullptr : &*found;
}

// How many parts of KernelCall::count the largest buffer of a rank has: one for each rank, unless
// all of them have the whole.
constexpr size_t parts_of(Collective collective, int ranks) noexcept {
  const bool is_whole = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                        collective == Collective::kBroadcast || collective == Collective::kBarrier;
  return is_whole ? 1 : static_cast<size_t>(ranks);
}

// Of a call; kAny where it adds nothing.
ElementKind element_kind_of(const KernelCall& call) noexcept;

// As tables that users read and write have them: "one_shot_ll", or "automatic"; torch's word,
// "all_gather_single"; "any", "float" or "integer"; "any", "eager" or "graph"; "any", "plain" or
// "registered".
std::string_view name_of(KernelAlgorithm algorithm) noexcept;
std::string_view name_of(Collective collective) noexcept;
std::string_view name_of(ElementKind kind) noexcept;
std::string_view name_of(LaunchMode mode) noexcept;
std::string_view name_of(TensorMemory memory) noexcept;
inline constexpr int kKinds = 3, kModes = 3, kMemories = 3;

}  // namespace torch::comms::ctran::kernels
