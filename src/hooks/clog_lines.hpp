#pragma once

#include <string>

#include <torchcomms/hooks.hpp>

namespace torch::comms {

// The fields of an operation in the call log, "in_count=4|out_count=4|...". `addresses` adds where
// the tensors are. "" for the operations that have no such line.
std::string clog_fields(const PreHookArgs& args, bool addresses);

}  // namespace torch::comms
