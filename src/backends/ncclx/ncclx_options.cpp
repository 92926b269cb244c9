#include "backends/ncclx/ncclx_options.hpp"

#include <string_view>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "core/options/hint_table.hpp"

namespace torch::comms::ncclx {
namespace {

using ctran::kernels::Collective;

constexpr std::string_view kPrefix = "ncclx::";
constexpr const char* kAlgorithm = hint::kNcclxAlgorithm.name;
constexpr const char* kTuningFile = hint::kNcclxTuningFile.name;
constexpr const char* kVariable = "TORCHCOMM_NCCLX_ALGORITHM";
constexpr const char* kPriority = hint::kHighPriorityStream.name;
constexpr const char* kOlderPriority = hint::kOlderHighPriorityStream.name;
// Hints that the library sets itself for a split.
constexpr const char* kReserved[] = {"ncclx::commDesc", "ncclx::splitGroupRanks"};

struct Key {
  const char* name;
  Collective collective;
};
constexpr Key kKeys[] = {
    {"allreduceAlgo", Collective::kAllReduce},
    {"allgatherAlgo", Collective::kAllGather},
    {"reducescatterAlgo", Collective::kReduceScatter},
    {"alltoallAlgo", Collective::kAllToAll},
    {"broadcastAlgo", Collective::kBroadcast},
    {"reduceAlgo", Collective::kReduce},
    {"gatherAlgo", Collective::kGather},
    {"barrierAlgo", Collective::kBarrier},
};
// Point-to-point messages have no kernels; only the library runs them.
constexpr const char* kMessages = "sendrecvAlgo";

const Key& key_of(const std::string& name) {
  std::string known = kMessages;
  for (const auto& key : kKeys) {
    if (name == key.name) return key;
    known += std::string(", ") + key.name;
  }
  throw CommError(Errc::kUnsupported,
                  "'" + name + "' cannot be configured for a communicator; allowed are " + known);
}

}  // namespace

ctran::KernelPreference parse_kernel_preference(const Hints& hints) {
  if (const auto preference = parse_call_kernel_preference(hints)) return *preference;
  const auto text = base::env_text(kVariable);
  return text ? ctran::parse_kernel_preference(kVariable, *text) : ctran::KernelPreference{};
}

bool is_reduction(Collective collective) noexcept {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

ctran::TuningFile parse_tuning_file(const Hints& hints) {
  const auto found = hints.find(kTuningFile);
  return ctran::find_tuning_file(kTuningFile, found == hints.end() ? "" : found->second);
}

void restrict_to_kernels(NcclxKernelPreferences& preferences) {
  for (const auto& key : kKeys) {
    auto& preference = preferences[static_cast<size_t>(key.collective)];
    if (!is_reduction(key.collective)) continue;
    if (preference.provider == ctran::KernelPreference::KernelProvider::kVendor)
      throw CommError(Errc::kInvalidArgument,
                      std::string("hint ") + hint::kBatchInvariant.name +
                          " needs kernels, but ncclx::algorithm or TORCHCOMM_NCCLX_ALGORITHM "
                          "requests the library: leave out one");
    preference.provider = ctran::KernelPreference::KernelProvider::kKernels;
  }
}

std::optional<ctran::KernelPreference> parse_call_kernel_preference(const Hints& hints) {
  const auto found = hints.find(kAlgorithm);
  if (found == hints.end() || found->second.empty()) return std::nullopt;
  return ctran::parse_kernel_preference(std::string("hint ") + kAlgorithm, found->second);
}

void normalize_hints(CommOptions& options) {
  for (const auto* reserved : kReserved)
    if (options.hints.contains(reserved))
      throw CommError(Errc::kInvalidArgument,
                      std::string("hint ") + reserved + " is set by the library: leave it out");
  Hints plain;
  for (const auto& [key, value] : options.hints) {
    if (key.starts_with(kPrefix) && key != kAlgorithm && key != kTuningFile)
      plain.emplace(key.substr(kPrefix.size()), value);
    if (key == kOlderPriority) plain.emplace(kPriority, value);
  }
  options.hints.insert(plain.begin(), plain.end());
}

void apply_config(NcclxKernelPreferences& preferences, const Hints& config) {
  auto changed = preferences;
  for (const auto& [name, value] : config) {
    auto* const place =
        name == kMessages ? nullptr : &changed[static_cast<size_t>(key_of(name).collective)];
    const bool is_library =
        value == "orig" || (place == nullptr && ctran::is_ctran_algorithm(value));
    const auto preference = ctran::parse_kernel_preference(name, is_library ? "nccl" : value);
    if (place != nullptr)
      *place = preference;
    else if (preference.provider == ctran::KernelPreference::KernelProvider::kKernels)
      throw CommError(Errc::kInvalidArgument, name + "='" + value +
                                                  "' is not allowed: messages have no kernels; "
                                                  "expected auto, nccl or orig");
  }
  preferences = changed;
}

}  // namespace torch::comms::ncclx
