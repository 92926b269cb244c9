#pragma once

#include <atomic>
#include <exception>
#include <string>

#include "base/os/log.hpp"

namespace torch::comms {

// Runs an observer's part of an operation. An exception does not fail the operation: the first one
// for each `logged` is logged, later ones are dropped.
template <class Call>
void call_observer_noexcept(const char* observer, std::atomic<bool>& logged,
                            const Call& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    if (!logged.exchange(true))
      base::log(base::LogLevel::kError,
                std::string(observer) + " missed an operation: " + error.what());
  }
}

}  // namespace torch::comms
