#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Returns whether `error` (an errno) means that a resource ran out: descriptors, memory, disk space
// or the file size limit.
TC_API bool is_resource_exhausted(int error) noexcept;

// Searches the `message` of another library for the strerror() text of an exhausted resource.
// Returns: the errno of that resource; 0 if there is no such text.
TC_API int resource_errno_in(std::string_view message) noexcept;

// Builds a CommError for the current errno: `what` and the strerror() text. If a limit of this
// process may be the reason, the text has its value and how to raise it. The code is
// kResourceExhausted if is_resource_exhausted(), else kSystem.
TC_API CommError system_error(const std::string& what, Context context = {});
// Builds the same kind of CommError for a given errno value.
TC_API CommError system_error(int error, const std::string& what, Context context = {});

// Checks that this process can open `count` more descriptors now; it does not reserve them. `who`
// names the library that needs them. Call it before a library that ends the process, or reports a
// misleading error, when descriptors run out.
// Throws: system_error().
TC_API void require_descriptors(size_t count, const std::string& who);

}  // namespace torch::comms::base
