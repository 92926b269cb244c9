#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::transport {

// A set of cores of one host, as an affinity mask. Two ranks of a host whose sets have a core in
// common share it. It is plain bytes, so ranks can send it as it is.
class CpuSet {
 public:
  CpuSet() noexcept { CPU_ZERO(&set_); }
  // Returns: the cores this thread may run on; core 0 if the system does not say.
  static TC_API CpuSet of_this_thread() noexcept;

  int count() const noexcept { return CPU_COUNT(&set_); }
  TC_API std::vector<int> list() const;
  bool intersects(const CpuSet& other) const noexcept {
    cpu_set_t both;
    CPU_AND(&both, &set_, &other.set_);
    return CPU_COUNT(&both) > 0;
  }
  CpuSet& operator|=(const CpuSet& other) noexcept {
    CPU_OR(&set_, &set_, &other.set_);
    return *this;
  }

 private:
  cpu_set_t set_;
};

// A number of ranks of one host, and the cores that they may run on.
struct CoreSharing {
  int ranks = 0;
  CpuSet cores = {};

  void add(const CpuSet& one) noexcept {
    ++ranks;
    cores |= one;
  }
  // Returns: whether there are more ranks per core than in `other`.
  bool denser_than(const CoreSharing& other) const noexcept {
    return int64_t{ranks} * other.cores.count() > int64_t{other.ranks} * cores.count();
  }
};

}  // namespace torch::comms::transport
