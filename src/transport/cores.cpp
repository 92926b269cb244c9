#include "transport/cores.hpp"

namespace torch::comms::transport {

Cores Cores::of_this_thread() noexcept {
  Cores cores;
  if (::sched_getaffinity(0, sizeof cores.set_, &cores.set_) != 0) {
    CPU_ZERO(&cores.set_);
    CPU_SET(0, &cores.set_);
  }
  return cores;
}

}  // namespace torch::comms::transport
