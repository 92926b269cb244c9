#include "core/options/hint.hpp"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "core/options/hint_table.hpp"

namespace torch::comms {
namespace {

constexpr std::string_view kColons = "::";
constexpr std::string_view kForwarding = "ncclx::";  // before any hint without a prefix
// Keys that torch writes from the options of a process group; no backend reads them.
constexpr std::string_view kTorchKeys[] = {"backend",
                                           "config",
                                           "enable_reconfigure",
                                           "global_ranks_in_group",
                                           "group_name",
                                           "lazy_init",
                                           "max_p2p_peers",
                                           "split_color",
                                           "split_from",
                                           "use_pg_for_symm_mem_rendezvous"};
constexpr size_t kMaxWarnedKeys = 64;

// Returns: the edit distance of two texts: how many letters to insert, remove or replace.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, diagonal + 1, changed});
    }
  }
  return row.back();
}

// Returns: the prefix with its colons; "" if there is none.
std::string_view prefix_of(std::string_view key) {
  const auto colons = key.rfind(kColons);
  return colons == std::string_view::npos ? "" : key.substr(0, colons + kColons.size());
}

template <class Visit>
void for_each_name(const Visit& visit) {
  for (const auto& row : hint::kAll)
    for (const std::string_view name : {row.name, row.alias})
      if (!name.empty()) visit(name);
}

// Returns: whether the key is in the table or is one of torch's.
bool is_known(std::string_view key) {
  static const auto* const known = [] {
    auto* const names =  // never destroyed, as communicators may outlive static destruction
        new std::unordered_set<std::string_view>(std::begin(kTorchKeys), std::end(kTorchKeys));
    for_each_name([names](std::string_view name) { names->insert(name); });
    return names;
  }();
  return known->contains(key) ||
         (key.starts_with(kForwarding) && known->contains(key.substr(kForwarding.size())));
}

// Returns: the names in the table with this prefix, in alphabetical order.
std::vector<std::string_view> names_with(std::string_view prefix) {
  std::vector<std::string_view> names;
  for_each_name([&](std::string_view name) {
    if (prefix_of(name) == prefix) names.push_back(name);
  });
  std::ranges::sort(names, [](std::string_view a, std::string_view b) {
    return std::ranges::lexicographical_compare(
        a, b, {}, [](unsigned char c) { return std::tolower(c); },
        [](unsigned char c) { return std::tolower(c); });
  });
  return names;
}

// Returns: a suggestion of a similar name, or the list of names with this prefix; nothing for a
// prefix that is not in the table.
std::optional<std::string> suggest_name(std::string_view key) {
  const auto prefix = prefix_of(key);
  const auto names = names_with(prefix);
  if (names.empty()) return std::nullopt;
  const auto near = std::ranges::min_element(
      names, {}, [key](std::string_view name) { return distance(key, name); });
  if (distance(key, *near) <= std::max<size_t>(1, (near->size() - prefix.size()) / 3))
    return "; did you mean " + std::string(*near) + "?";
  std::string list;
  for (const auto name : names) list.append(list.empty() ? "" : ", ").append(name);
  if (prefix.empty()) return "; known hints without a prefix: " + list;
  const auto backend = prefix.substr(0, prefix.size() - kColons.size());
  return "; backend '" + std::string(backend) + "' has " + list;
}

// Returns: whether to warn about the key, which is true once per key.
bool is_first_warning(const std::string& key) {
  static std::mutex mutex;  // guards warned_keys
  static std::set<std::string> warned_keys;
  const std::lock_guard lock(mutex);
  return warned_keys.size() < kMaxWarnedKeys && warned_keys.insert(key).second;
}

bool call_check_default() { return env_to_value<bool>("TORCHCOMM_CHECK_CALLS", false); }

}  // namespace

bool parse_bool_hint(const Hints& hints, const std::string& key, bool otherwise) {
  const auto found = hints.find(key);
  if (found == hints.end()) return otherwise;
  try {
    return string_to_bool(found->second);
  } catch (const CommError& error) {
    throw CommError(Errc::kInvalidArgument, "hint " + key + ": " + error.why());
  }
}

void warn_unknown_hints(const Hints& hints) {
  for (const auto& [key, value] : hints) {
    if (key.empty() || is_known(key)) continue;
    if (const auto instead = suggest_name(key); instead && is_first_warning(key))
      base::log(base::LogLevel::kWarning,
                "hint " + key + " is unknown and has no effect" + *instead);
  }
}

bool is_batch_invariant(const Hints& hints, bool otherwise) {
  return parse_bool_hint(hints, hint::kBatchInvariant.name, otherwise);
}

bool is_call_check_enabled(const CommOptions& options) {
  return parse_bool_hint(options.hints, hint::kCheckCalls.name, call_check_default());
}

CommOptions inherit_call_check(bool parent_checks, CommOptions options) {
  if (parent_checks != call_check_default())
    options.hints.try_emplace(hint::kCheckCalls.name, parent_checks ? "true" : "false");
  return options;
}

}  // namespace torch::comms
