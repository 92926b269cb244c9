#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

// Shared libraries of vendors. They own threads, so none is ever unloaded.
namespace torch::comms::base {

// Paths of the libraries in this process whose file name begins with `stem` ("libnccl.so"), in the
// order they were loaded.
TC_API std::vector<std::string> loaded_libraries(std::string_view stem);

// dlopen with RTLD_LOCAL and RTLD_NODELETE. `file` is a path, or a name that the loader looks for.
// Null where it does not load; `why` is then the loader's own text.
TC_API void* open_library(const std::string& file, std::string& why);

// The path of the file that `address`, of a function say, was loaded from; "" where unknown.
TC_API std::string path_of_library(const void* address);

}  // namespace torch::comms::base
