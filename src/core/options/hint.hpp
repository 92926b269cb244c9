#pragma once

#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/options.hpp>

// What is done with hints wherever they are read; their names are in hint_table.hpp. Throws
// CommError(kInvalidArgument), without context, naming the hint.
namespace torch::comms {

// A boolean; `otherwise` where it is not given.
TC_API bool parse_bool_hint(const Hints& hints, const std::string& key, bool otherwise);

// Warns of hints that have no effect because no backend of this library knows them: of those
// without a prefix, which are everybody's, and of those with the prefix of one that are not in the
// table. Once for each of the first 64 keys of a process. What torch writes of its own options is
// known. For hints of a backend that reads none but those of the table.
TC_API void warn_unknown_hints(const Hints& hints);

// `batch_invariant`, of a communicator or of one call: the bits of an element of a sum do not
// depend on what is beside it, because everything is added in the order of the ranks.
TC_API bool is_batch_invariant(const Hints& hints, bool otherwise = false);

// `check_calls`, of a communicator, else TORCHCOMM_CHECK_CALLS: each collective is compared on all
// ranks before it begins.
TC_API bool is_call_check_enabled(const CommOptions& options);
// Options of a split: where they say nothing of that, as its parent.
TC_API CommOptions inherit_call_check(bool parent_checks, CommOptions options);

}  // namespace torch::comms
