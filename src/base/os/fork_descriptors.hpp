#pragma once

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Makes forked children replace `descriptor` with one of /dev/null, until a FileDescriptor closes
// it in this process. Otherwise a connection would stay open as long as a child lives, and the peer
// would not notice that this process has died.
//
// Threads: any.
TC_API void set_close_on_fork(int descriptor) noexcept;

}  // namespace torch::comms::base
