#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::transport {

// Cores of one host, as an affinity mask names them: ranks there that name the same one share it.
// Plain bytes, so that ranks can tell theirs as they stand.
class CpuSet {
 public:
  CpuSet() noexcept { CPU_ZERO(&set_); }
  // Those this thread may run on; core 0 where the system does not say.
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

// Ranks of one host, and the cores that they may run on.
struct CoreSharing {
  int ranks = 0;
  CpuSet cores = {};

  void add(const CpuSet& one) noexcept {
    ++ranks;
    cores |= one;
  }
  // More ranks to a core.
  bool denser_than(const CoreSharing& other) const noexcept {
    return int64_t{ranks} * other.cores.count() > int64_t{other.ranks} * cores.count();
  }
};

}  // namespace torch::comms::transport
