#pragma once

#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/options.hpp>

// Functions that read hints; hint_table.hpp lists their names. They throw
// CommError(kInvalidArgument) with the name of the hint, without context.
namespace torch::comms {

// Returns: the hint as a boolean; `otherwise` if it is absent.
TC_API bool parse_bool_hint(const Hints& hints, const std::string& key, bool otherwise);

// Warns about hints without effect because no backend of this library knows them. It warns about
// unknown hints without a prefix, and about unknown hints with the prefix of a backend in the
// table. It warns once for each of the first 64 keys of a process. Keys that torch writes from its
// own options are known. Call it for backends that read only hints of the table.
TC_API void warn_unknown_hints(const Hints& hints);

// Returns: hint `batch_invariant` of a communicator or a call. With it, the bits of a summed
// element do not depend on the data around it, because all values are added in rank order.
TC_API bool is_batch_invariant(const Hints& hints, bool otherwise = false);

// Returns: hint `check_calls` of a communicator, otherwise TORCHCOMM_CHECK_CALLS. With it, all
// ranks compare each collective before it begins.
TC_API bool is_call_check_enabled(const CommOptions& options);
// Returns: the options of a split, with the parent's `check_calls` if they have none.
TC_API CommOptions inherit_call_check(bool parent_checks, CommOptions options);

}  // namespace torch::comms
