#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Throws system_error(EFBIG), which names the limit, if RLIMIT_FSIZE forbids this process a file of
// `size_bytes`. Call it before ftruncate() and fallocate(): beyond the limit the kernel sends
// SIGXFSZ, which ends a process by default.
TC_API void require_file_size(uint64_t size_bytes, const std::string& what);

}  // namespace torch::comms::base
