#include "core/hint.hpp"

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

constexpr const char* kCheckCalls = "check_calls";

bool checks_otherwise() { return env_to_value<bool>("TORCHCOMM_CHECK_CALLS", false); }

}  // namespace

bool flag_of(const Hints& hints, const std::string& key, bool otherwise) {
  const auto found = hints.find(key);
  if (found == hints.end()) return otherwise;
  try {
    return string_to_bool(found->second);
  } catch (const CommError& error) {
    throw CommError(Errc::kInvalidArgument, "hint " + key + ": " + error.why());
  }
}

bool is_batch_invariant(const Hints& hints, bool otherwise) {
  return flag_of(hints, kBatchInvariant, otherwise);
}

bool checks_calls(const CommOptions& options) {
  return flag_of(options.hints, kCheckCalls, checks_otherwise());
}

CommOptions with_checks_of(bool parent_checks, CommOptions options) {
  if (parent_checks != checks_otherwise())
    options.hints.try_emplace(kCheckCalls, parent_checks ? "true" : "false");
  return options;
}

}  // namespace torch::comms
