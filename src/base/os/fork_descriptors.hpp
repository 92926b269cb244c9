#pragma once

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// In every child that this process forks, `descriptor` stands for nothing (it is one of /dev/null),
// until a FileDescriptor closes it here. Else a connection would outlive its process for as long as
// a child does, and its other side would not see that the process has died. Any thread.
TC_API void set_close_on_fork(int descriptor) noexcept;

}  // namespace torch::comms::base
