#pragma once

#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/options.hpp>

// Hints that more than one backend knows. Throws CommError(kInvalidArgument), without context,
// naming the hint.
namespace torch::comms {

// A boolean; `otherwise` where it is not given.
TC_API bool flag_of(const Hints& hints, const std::string& key, bool otherwise);

// Warns of hints that have no effect because no backend knows them: of those without a prefix,
// which are everybody's. Each key once. What torch writes of its own options is known.
TC_API void tell_of_unknown(const Hints& hints);
// Warns of one key. `instead`: what follows "hint x is unknown and has no effect". Once for each of
// the first 64 keys of a process.
TC_API void tell_of_unknown(const std::string& key, const std::string& instead);

// `batch_invariant`, of a communicator or of one call: the bits of an element of a sum do not
// depend on what is beside it, because everything is added in the order of the ranks.
inline constexpr const char* kBatchInvariant = "batch_invariant";
TC_API bool is_batch_invariant(const Hints& hints, bool otherwise = false);

// `check_calls`, of a communicator, else TORCHCOMM_CHECK_CALLS: each collective is compared on all
// ranks before it begins.
TC_API bool checks_calls(const CommOptions& options);
// Options of a split: where they say nothing of that, as its parent.
TC_API CommOptions with_checks_of(bool parent_checks, CommOptions options);

}  // namespace torch::comms
