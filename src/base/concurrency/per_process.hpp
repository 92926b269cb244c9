#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/os/fork.hpp"

namespace torch::comms::base {

// A T for each process of a line that forks: a child begins with a new one, since locks of the
// parent's may be held by threads that it does not have. None is ever destroyed, as threads may
// outlive static objects. Any thread.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    auto* current = current_.load(std::memory_order_acquire);
    if (current != nullptr && current->generation == fork_generation()) return current->value;
    auto made = std::make_unique<PerForkValue>();
    if (current_.compare_exchange_strong(current, made.get(), std::memory_order_acq_rel))
      return made.release()->value;
    return current->value;
  }

 private:
  struct PerForkValue {
    const uint64_t generation = fork_generation();
    T value{};
  };
  std::atomic<PerForkValue*> current_{nullptr};
};

}  // namespace torch::comms::base
