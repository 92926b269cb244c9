#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ctran/kernels/host/library.hpp"

// Tables of which library runs an operation, and how: rows of measurements or of a model. The first
// row that matches counts. Includes only the standard library.
namespace torch::comms::ctran::kernels {

// Classes of elements, by the arithmetic that adding them takes.
enum class ElementKind : uint8_t { kAny, kFloat, kInteger };
// Whether an operation is captured in a CUDA graph.
enum class LaunchMode : uint8_t { kAny, kEager, kGraph };

// Whether the tensors are in windows, which hint `registered` promises for all ranks.
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
  KernelAlgorithm algorithm;     // kAutomatic: chosen by the library of kernels
  int blocks;                    // at most; 0: chosen by the library of kernels
  ElementKind kind = ElementKind::kAny;
  LaunchMode mode = LaunchMode::kAny;
  bool uses_vendor_library =
      false;  // run by a vendor's library, if there is one; the row has no algorithm
  bool uses_window_collective =
      false;  // run as a window collective, with kRegistered; no algorithm
  TensorMemory memory = TensorMemory::kAny;
  int block_limit = 0;  // for operations that may have at most so many blocks; 0: for all

  bool operator==(const SelectionRow&) const = default;
};

// What a row is looked up by. Equal on all ranks.
struct SelectionKey {
  Collective collective;
  int ranks;
  size_t bytes;
  ElementKind kind;
  LaunchMode mode;
  TensorMemory memory = TensorMemory::kAny;
  int block_limit = 0;  // blocks that it may have; 0: any number
};

constexpr bool matches(const SelectionRow& row, const SelectionKey& key) noexcept {
  return row.collective == key.collective && row.ranks.contains(key.ranks) &&
         row.bytes.contains(key.bytes) && (row.kind == ElementKind::kAny || row.kind == key.kind) &&
         (row.mode == LaunchMode::kAny || row.mode == key.mode) &&
         (row.memory == TensorMemory::kAny || row.memory == key.memory) &&
         (row.block_limit == 0 || (key.block_limit > 0 && key.block_limit <= row.block_limit));
}
// Returns the blocks of a row, limited to `within`. 0 is "chosen by the kernels" for `blocks`, and
// "no limit" for `within`.
constexpr int blocks_within(int blocks, int within) noexcept {
  return within == 0 ? blocks : blocks == 0 ? within : std::min(blocks, within);
}

// Returns the first row that matches and for which `accepts(row)` is true; null: none.
template <class Accepts>
constexpr const SelectionRow* find(std::span<const SelectionRow> rows, const SelectionKey& key,
                                   const Accepts& accepts) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const SelectionRow& row) {
    return matches(row, key) && accepts(row);
  });
  return found == rows.end() ? nullptr : &*found;
}

// Returns how many parts of KernelCall::count the largest buffer of a rank has: one for each rank,
// or 1 if all ranks have the whole tensor.
constexpr size_t parts_of(Collective collective, int ranks) noexcept {
  const bool is_whole = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                        collective == Collective::kBroadcast || collective == Collective::kBarrier;
  return is_whole ? 1 : static_cast<size_t>(ranks);
}

// Returns kAny for a call that adds nothing.
ElementKind element_kind_of(const KernelCall& call) noexcept;

// Names as they stand in tables of users. Algorithm: "one_shot_ll", or "automatic". Collective:
// torch's word, such as "all_gather_single". Kind: "any", "float" or "integer". Mode: "any",
// "eager" or "graph". Memory: "any", "plain" or "registered".
std::string_view name_of(KernelAlgorithm algorithm) noexcept;
std::string_view name_of(Collective collective) noexcept;
std::string_view name_of(ElementKind kind) noexcept;
std::string_view name_of(LaunchMode mode) noexcept;
std::string_view name_of(TensorMemory memory) noexcept;
inline constexpr int kKinds = 3, kModes = 3, kMemories = 3;

}  // namespace torch::comms::ctran::kernels
