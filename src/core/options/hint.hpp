#pragma once

#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/options.hpp>

// Reads hints; hint_table.hpp lists their names. For an invalid value the functions throw
// CommError(kInvalidArgument) without context; its text names the hint or variable.
namespace torch::comms {

// Returns: the hint as a boolean; `otherwise` if it is absent.
TC_API bool parse_bool_hint(const Hints& hints, const std::string& key, bool otherwise);

// Logs a warning for each hint that has no effect because no backend of this library knows it. It
// warns about unknown hints without a prefix, and about unknown hints with a prefix that is in the
// table. It warns once for each of the first 64 keys of a process. Keys that torch writes from its
// own options are known. Call it only for backends that read no hints but those of the table.
// Threads: any.
TC_API void warn_unknown_hints(const Hints& hints);

// Returns: hint `batch_invariant` of a communicator or a call; `otherwise` if it is absent. With
// it, the bits of a summed element do not depend on the data around it, because all values are
// added in rank order.
TC_API bool is_batch_invariant(const Hints& hints, bool otherwise = false);

// Returns: hint `check_calls` of a communicator, otherwise TORCHCOMM_CHECK_CALLS. With it, all
// ranks compare each collective before it begins, so the value must be equal on all ranks.
TC_API bool is_call_check_enabled(const CommOptions& options);
// Returns: the options of a split, with the parent's `check_calls` if they have none.
TC_API CommOptions inherit_call_check(bool parent_checks, CommOptions options);

}  // namespace torch::comms
