#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

// Finds and loads libraries, such as those of vendors. They may own threads, so they are never
// unloaded.
namespace torch::comms::base {

// Returns the paths of the loaded libraries whose file name begins with `stem` ("libnccl.so"), in
// load order.
TC_API std::vector<std::string> loaded_libraries(std::string_view stem);

// Loads a library with dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE). `file` is a path, or a name
// that the loader searches for. Returns: the handle for dlsym(); null on failure, and `why` is then
// the loader's text.
TC_API void* open_library(const std::string& file, std::string& why);

// Returns the path of the file that contains `address`, for example of a function; "" if unknown.
TC_API std::string path_of_library(const void* address);

}  // namespace torch::comms::base
