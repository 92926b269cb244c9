#pragma once

#include <string>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// `error` (an errno) says that something ran out: descriptors, memory, space.
TC_API bool is_scarcity(int error) noexcept;

// What the system refused just now: `what`, errno's words and, where descriptors ran out, how many
// this process may open. kResourceExhausted where something ran out, else kSystem.
TC_API CommError system_error(const std::string& what, Context context = {});

}  // namespace torch::comms::base
