#include "backends/ctran/ctran_options.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <torchcomms/base/error.hpp>

#include "backends/ctran/operation_mapping.hpp"
#include "backends/device_kernels/registered_buffers.hpp"
#include "backends/device_kernels/workspace_policy.hpp"
#include "base/net/interfaces.hpp"
#include "base/os/env.hpp"
#include "core/options/hint.hpp"
#include "core/options/hint_table.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Operation;

constexpr const char* kTransport = hint::kCtranTransport.name;
constexpr const char* kInterface = hint::kCtranInterface.name;
constexpr const char* kHost = hint::kCtranHostId.name;
constexpr const char* kAlgorithm = hint::kCtranAlgorithm.name;
constexpr const char* kChunkBytes = hint::kCtranChunkBytes.name;
constexpr const char* kTuningFile = hint::kCtranTuningFile.name;
constexpr const char* kKernelAlgorithm = hint::kCtranKernelAlgorithm.name;
constexpr const char* kKernelVariable = "TORCHCOMM_CTRAN_KERNEL_ALGORITHM";
constexpr const char* kSingleCopy = hint::kCtranSingleCopy.name;

std::optional<std::string_view> find_hint(const Hints& hints, const char* key) {
  const auto found = hints.find(key);
  if (found == hints.end() || found->second.empty() || found->second == "None") return std::nullopt;
  return found->second;
}

[[noreturn]] void refuse(const char* key, std::string_view value, const std::string& allowed) {
  throw CommError(Errc::kInvalidArgument, "hint " + std::string(key) + "='" + std::string(value) +
                                              "' is not allowed: expected " + allowed);
}

// Returns: the operation with this name, which is either a public name or a name of schedule/.
std::optional<Operation> operation_named(std::string_view text) {
  for (const auto* algorithm : schedule::algorithms())
    if (operation_name(algorithm->operation) == text) return algorithm->operation;
  for (int i = 0; i < kOpNameCount; ++i)
    if (opToString(static_cast<OpName>(i)) == text) return operation_of(static_cast<OpName>(i));
  return std::nullopt;
}

std::string operations() {
  std::string text;
  for (const auto* algorithm : schedule::algorithms()) {
    const std::string word(operation_name(algorithm->operation));
    if (!text.ends_with(word)) text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

std::string algorithms(std::optional<Operation> operation) {
  std::string text;
  for (const auto* algorithm : schedule::algorithms()) {
    const std::string word(algorithm->name);
    if (operation && algorithm->operation != *operation) continue;
    if ((", " + text + ",").find(", " + word + ",") == std::string::npos)
      text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

// Adds an algorithm request. A later request for the same operation replaces an earlier one.
void add(AlgorithmRequests& requests, const schedule::Algorithm* algorithm) {
  std::erase_if(requests.algorithms,
                [&](const auto* other) { return other->operation == algorithm->operation; });
  requests.algorithms.push_back(algorithm);
}

void add_pair(AlgorithmRequests& requests, std::string_view pair, size_t colon) {
  const auto operation = operation_named(pair.substr(0, colon));
  if (!operation) refuse(kAlgorithm, pair, "<operation>:<algorithm>; operations: " + operations());
  const auto* algorithm = schedule::find_algorithm(*operation, pair.substr(colon + 1));
  if (algorithm == nullptr)
    refuse(kAlgorithm, pair,
           "an algorithm of " + std::string(operation_name(*operation)) + ": " +
               algorithms(operation));
  add(requests, algorithm);
}

void add_plain(AlgorithmRequests& requests, std::string_view word, std::optional<Operation> only) {
  bool found = false;
  for (const auto* algorithm : schedule::algorithms())
    if (algorithm->name == word && (!only || algorithm->operation == *only)) {
      add(requests, algorithm);
      found = true;
    }
  if (!found)
    refuse(kAlgorithm, word,
           only ? "an algorithm of " + std::string(operation_name(*only)) + ": " + algorithms(only)
                : "an algorithm: " + algorithms(only));
}

AlgorithmRequests read(const Hints& hints, const AlgorithmRequests& fallback,
                       std::optional<Operation> only) {
  AlgorithmRequests requests = fallback;
  if (auto rest = find_hint(hints, kAlgorithm)) {
    while (true) {
      const auto part = rest->substr(0, rest->find(','));
      const auto colon = part.find(':');
      if (colon == std::string_view::npos)
        add_plain(requests, part, only);
      else
        add_pair(requests, part, colon);
      if (part.size() == rest->size()) break;
      rest->remove_prefix(part.size() + 1);
    }
  }
  if (const auto text = find_hint(hints, kChunkBytes)) {
    const auto *begin = text->data(), *end = begin + text->size();
    const auto [stop, code] = std::from_chars(begin, end, requests.chunk_bytes);
    if (code != std::errc{} || stop != end || requests.chunk_bytes < 0)
      refuse(kChunkBytes, *text, "a whole number of bytes, 0 for everything at once");
  }
  requests.batch_invariant = is_batch_invariant(hints, fallback.batch_invariant);
  return requests;
}

}  // namespace

LinkPolicy parse_link_policy(const Hints& hints) {
  const auto text = find_hint(hints, kTransport);
  if (!text || *text == "auto") return LinkPolicy::kAuto;
  if (*text == "shm") return LinkPolicy::kShm;
  if (*text == "tcp") return LinkPolicy::kTcp;
  refuse(kTransport, *text, "auto, shm or tcp");
}

std::string parse_interface(const Hints& hints) {
  const std::string interface(find_hint(hints, kInterface).value_or(""));
  // The interface must exist even if no peer is connected over it.
  if (!interface.empty())
    static_cast<void>(base::choose_addresses(base::interface_addresses(), interface));
  return interface;
}

std::string parse_host_id(const Hints& hints) {
  constexpr size_t kMost = 128;
  auto name = std::string(find_hint(hints, kHost).value_or(""));
  if (name.empty()) name = base::env_text("TORCHCOMM_CTRAN_HOST_ID").value_or("");
  if (name.size() > kMost) refuse(kHost, name, "a name of at most 128 characters");
  return name;
}

TuningFile parse_tuning_file(const Hints& hints) {
  return find_tuning_file(kTuningFile, find_hint(hints, kTuningFile).value_or(""));
}

KernelPreference parse_call_kernel_preference(const Hints& hints,
                                              const KernelPreference& fallback) {
  const auto text = find_hint(hints, kKernelAlgorithm);
  if (!text) return fallback;
  std::string setting_name = "hint ";
  setting_name += kKernelAlgorithm;
  return parse_kernel_preference(setting_name, *text, /*has_library=*/false);
}

KernelPreference parse_kernel_preference(const Hints& hints) {
  const auto text = base::env_text(kKernelVariable);
  const auto fallback = text
                            ? parse_kernel_preference(kKernelVariable, *text, /*has_library=*/false)
                            : KernelPreference{};
  return parse_call_kernel_preference(hints, fallback);
}

bool parse_single_copy(const Hints& hints) { return parse_bool_hint(hints, kSingleCopy, true); }

AlgorithmRequests parse_and_validate_hints(const Hints& hints) {
  parse_link_policy(hints);
  parse_host_id(hints);
  parse_single_copy(hints);
  parse_kernel_preference(hints);
  (void)parse_registered_mode(hints);
  (void)parse_workspace_extent(hints);
  return parse_algorithm_requests(hints);
}

AlgorithmRequests parse_algorithm_requests(const Hints& hints, const AlgorithmRequests& fallback) {
  warn_unknown_hints(hints);
  return read(hints, fallback, std::nullopt);
}

AlgorithmRequests parse_call_algorithm_requests(const Hints& hints, Operation operation,
                                                const AlgorithmRequests& fallback) {
  return hints.empty() ? fallback : read(hints, fallback, operation);
}

}  // namespace torch::comms::ctran
