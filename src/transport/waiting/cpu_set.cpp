#include "transport/waiting/cpu_set.hpp"

namespace torch::comms::transport {

CpuSet CpuSet::of_this_thread() noexcept {
  CpuSet cores;
  if (::sched_getaffinity(0, sizeof cores.set_, &cores.set_) != 0) {
    CPU_ZERO(&cores.set_);
    CPU_SET(0, &cores.set_);
  }
  return cores;
}

std::vector<int> CpuSet::list() const {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set_)) cores.push_back(core);
  return cores;
}

}  // namespace torch::comms::transport
