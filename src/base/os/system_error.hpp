#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// `error` (an errno) says that something ran out: descriptors, memory, space.
TC_API bool is_resource_exhausted(int error) noexcept;

// The errno of what ran out, where another library's message has the system's words for it; else 0.
TC_API int resource_errno_in(std::string_view message) noexcept;

// What the system refused just now: `what`, errno's words and, where a limit of this process is the
// reason, its value and how to raise it. kResourceExhausted where something ran out, else kSystem.
TC_API CommError system_error(const std::string& what, Context context = {});
// The same of another time's `error`.
TC_API CommError system_error(int error, const std::string& what, Context context = {});

// For libraries that end the process, or blame something else, where they get none. Throws
// system_error() unless this process may open `count` more descriptors now; `who` needs them.
TC_API void require_descriptors(size_t count, const std::string& who);

}  // namespace torch::comms::base
