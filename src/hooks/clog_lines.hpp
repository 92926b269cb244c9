#pragma once

#include <string>
#include <string_view>

#include <torchcomms/hooks.hpp>

namespace torch::comms {

// The fields of an operation in the call log, "in_count=4|out_count=4|...". `addresses` adds where
// the tensors are. "" for the operations that have no such line.
std::string clog_fields(const PreHookArgs& args, bool addresses);

// A name as the value of a field: what would end a field or a line, or steer a terminal, is \x7c.
std::string clog_name(std::string_view name);

}  // namespace torch::comms
