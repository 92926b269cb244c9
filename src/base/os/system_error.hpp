#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Returns whether `error` (an errno) means that a resource ran out: descriptors, memory or space.
TC_API bool is_resource_exhausted(int error) noexcept;

// Returns the errno of an exhausted resource if another library's `message` contains its strerror()
// text; else 0.
TC_API int resource_errno_in(std::string_view message) noexcept;

// Builds a CommError for the current errno: `what` and the strerror() text. If a limit of this
// process is the reason, the text has its value and how to raise it. The code is kResourceExhausted
// if a resource ran out, else kSystem.
TC_API CommError system_error(const std::string& what, Context context = {});
// Builds the same kind of CommError for a given errno value.
TC_API CommError system_error(int error, const std::string& what, Context context = {});

// Throws system_error() unless this process can open `count` more descriptors now. `who` names the
// library that needs them. For libraries that end the process or report a misleading error if they
// get none.
TC_API void require_descriptors(size_t count, const std::string& who);

}  // namespace torch::comms::base
