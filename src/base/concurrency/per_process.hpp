#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/os/fork.hpp"

namespace torch::comms::base {

// Holds one T per process: a forked child gets a new T. The parent's locks may be held by threads
// that the child does not have. No T is ever destroyed, because threads may outlive static objects.
//
// Threads: any.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    auto* current = current_.load(std::memory_order_acquire);
    if (current != nullptr && current->generation == fork_generation()) return current->value;
    auto created = std::make_unique<PerForkValue>();
    if (current_.compare_exchange_strong(current, created.get(), std::memory_order_acq_rel))
      return created.release()->value;
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
