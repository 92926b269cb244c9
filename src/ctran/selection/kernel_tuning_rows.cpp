#include "ctran/selection/kernel_tuning_rows.hpp"

#include <cctype>
#include <cstdint>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"

namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;

constexpr size_t kMaxWordLength = 64;
constexpr int64_t kMostBytes = int64_t{1} << 62;
constexpr int64_t kMostBlocks = 1024;
constexpr std::string_view kByLibrary = "nccl", kByKernels = "kernels", kByWindow = "region";

// Reads a word that names one of the values from `first` on, below `end`.
template <class T>
T named(FieldParser& fields, std::string_view field, T first, int end) {
  std::string allowed;
  for (int i = static_cast<int>(first); i < end; ++i)
    allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(static_cast<T>(i)));
  const auto word = fields.word(field, allowed);
  for (int i = static_cast<int>(first); i < end; ++i)
    if (name_of(static_cast<T>(i)) == word) return static_cast<T>(i);
  fields.fail(field, word, allowed);
}

void read_algorithm(FieldParser& fields, kernels::SelectionRow& row) {
  std::string allowed =
      std::string(kByLibrary) + ", " + std::string(kByKernels) + ", " + std::string(kByWindow);
  for (int i = 1; i < kernels::kAlgorithms; ++i)
    allowed += ", " + std::string(name_of(static_cast<KernelAlgorithm>(i)));
  const auto word = fields.word("algorithm", allowed);
  row.algorithm = KernelAlgorithm::kAutomatic;
  row.uses_vendor_library = word == kByLibrary;
  row.uses_window_collective = word == kByWindow;
  if (row.uses_vendor_library || row.uses_window_collective || word == kByKernels) return;
  for (int i = 1; i < kernels::kAlgorithms; ++i)
    if (word == name_of(static_cast<KernelAlgorithm>(i)))
      row.algorithm = static_cast<KernelAlgorithm>(i);
  if (row.algorithm == KernelAlgorithm::kAutomatic) fields.fail("algorithm", word, allowed);
}

template <class T>
std::string format_range(const kernels::InclusiveRange<T>& range) {
  return std::to_string(range.first) + ".." + std::to_string(range.last);
}

}  // namespace

std::string to_word(std::string_view name) {
  std::string word;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte) != 0)
      word += static_cast<char>(std::tolower(byte));
    else if (!word.empty() && word.back() != '-')
      word += '-';
  }
  word.resize(std::min(word.size(), kMaxWordLength));
  while (word.ends_with('-')) word.pop_back();
  return word;
}

KernelTuningRow parse_kernel_line(FieldParser& fields) {
  KernelTuningRow tuning_row;
  auto& row = tuning_row.row;
  row.collective = named(fields, "operation", Collective::kAllReduce,
                         static_cast<int>(Collective::kBarrier) + 1);
  fields.literal("gpu");
  constexpr std::string_view kModel = "a model in lower case, such as nvidia-h200";
  const auto model = fields.word("gpu", kModel);
  if (model != to_word(model)) fields.fail("gpu", model, kModel);
  tuning_row.gpu = model;
  fields.literal("ranks");
  const auto ranks = fields.integer_range("ranks", 2, kernels::kMaxRanks);
  row.ranks = {static_cast<int>(ranks.first), static_cast<int>(ranks.last)};
  fields.literal("bytes");
  const auto bytes = fields.integer_range("bytes", 0, kMostBytes);
  row.bytes = {static_cast<size_t>(bytes.first), static_cast<size_t>(bytes.last)};
  fields.literal("kind");
  row.kind = named(fields, "kind", kernels::ElementKind::kAny,
                   is_reduction(row.collective) ? kernels::kKinds : 1);
  fields.literal("mode");
  row.mode = named(fields, "mode", kernels::LaunchMode::kAny, kernels::kModes);
  fields.literal("algorithm");
  read_algorithm(fields, row);
  fields.literal("blocks");
  const bool has_blocks =
      row.algorithm != KernelAlgorithm::kAutomatic || row.uses_window_collective;
  row.blocks = static_cast<int>(fields.integer("blocks", has_blocks ? kMostBlocks : 0));
  if (fields.try_literal("tensors"))
    row.memory = named(fields, "tensors", kernels::TensorMemory::kAny, kernels::kMemories);
  if (row.uses_window_collective && row.memory != kernels::TensorMemory::kRegistered)
    fields.fail("tensors", name_of(row.memory), "registered, where algorithm is region");
  if (fields.try_literal("within"))
    row.block_limit = static_cast<int>(fields.integer("within", kMostBlocks));
  return tuning_row;
}

std::string_view format_algorithm(const kernels::SelectionRow& row) noexcept {
  if (row.uses_vendor_library) return kByLibrary;
  if (row.uses_window_collective) return kByWindow;
  return row.algorithm == KernelAlgorithm::kAutomatic ? kByKernels : name_of(row.algorithm);
}

std::string to_text(const KernelTuningRow& tuning_row) {
  const auto& row = tuning_row.row;
  return "kernel " + std::string(name_of(row.collective)) + " gpu " + tuning_row.gpu + " ranks " +
         format_range(row.ranks) + " bytes " + format_range(row.bytes) + " kind " +
         std::string(name_of(row.kind)) + " mode " + std::string(name_of(row.mode)) +
         " algorithm " + std::string(format_algorithm(row)) + " blocks " +
         std::to_string(row.blocks) +
         (row.memory == kernels::TensorMemory::kAny
              ? ""
              : " tensors " + std::string(name_of(row.memory))) +
         (row.block_limit == 0 ? "" : " within " + std::to_string(row.block_limit));
}

std::vector<kernels::SelectionRow> rows_for(const std::vector<KernelTuningRow>& rows,
                                            std::string_view gpu, int ranks) {
  std::vector<kernels::SelectionRow> found;
  for (const auto& each : rows)
    if (each.gpu == gpu && each.row.ranks.contains(ranks)) found.push_back(each.row);
  return found;
}

std::string format_measured_gpus(const std::vector<KernelTuningRow>& rows) {
  std::string text;
  for (const auto& each : rows) {
    const auto [first, last] = each.row.ranks;
    const auto entry = each.gpu + " with " + std::to_string(first) +
                       (first == last ? "" : " to " + std::to_string(last)) + " ranks";
    if ((", " + text + ",").find(", " + entry + ",") == std::string::npos)
      text += (text.empty() ? "" : ", ") + entry;
  }
  return text;
}

}  // namespace torch::comms::ctran
