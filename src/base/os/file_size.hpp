#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Throws system_error(EFBIG), which names the limit, where RLIMIT_FSIZE forbids this process a file
// of `size_bytes`. It comes before every ftruncate() and fallocate(): there the system sends
// SIGXFSZ, which ends a process by default.
TC_API void require_file_size(uint64_t size_bytes, const std::string& what);

}  // namespace torch::comms::base
