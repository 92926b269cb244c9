#pragma once

#include <string>
#include <string_view>

#include <torchcomms/hooks.hpp>

namespace torch::comms {

// Returns: the fields of an operation in the call log, "in_count=4|out_count=4|..."; "" for
// operations without such a line. `addresses` adds the addresses of the tensors.
std::string clog_fields(const PreHookArgs& args, bool addresses);

// Returns: a name as the value of a field. Characters that would end a field or a line, or control
// a terminal, are escaped like \x7c.
std::string clog_name(std::string_view name);

}  // namespace torch::comms
