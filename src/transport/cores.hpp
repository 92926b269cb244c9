#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::transport {

// Cores of one host, as an affinity mask names them: ranks there that name the same one share it.
// Plain bytes, so that ranks can tell theirs as they stand.
class Cores {
 public:
  Cores() noexcept { CPU_ZERO(&set_); }
  // Those this thread may run on; core 0 where the system does not say.
  static TC_API Cores of_this_thread() noexcept;

  int count() const noexcept { return CPU_COUNT(&set_); }
  TC_API std::vector<int> list() const;
  bool meet(const Cores& other) const noexcept {
    cpu_set_t both;
    CPU_AND(&both, &set_, &other.set_);
    return CPU_COUNT(&both) > 0;
  }
  Cores& operator|=(const Cores& other) noexcept {
    CPU_OR(&set_, &set_, &other.set_);
    return *this;
  }

 private:
  cpu_set_t set_;
};

// Ranks of one host, and the cores that they may run on.
struct Crowd {
  int ranks = 0;
  Cores cores = {};

  void add(const Cores& one) noexcept {
    ++ranks;
    cores |= one;
  }
  // More ranks to a core.
  bool denser_than(const Crowd& other) const noexcept {
    return int64_t{ranks} * other.cores.count() > int64_t{other.ranks} * cores.count();
  }
};

}  // namespace torch::comms::transport
