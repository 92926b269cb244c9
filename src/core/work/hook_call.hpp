#pragma once

#include <exception>
#include <string>

#include "base/os/log.hpp"

namespace torch::comms {

// Runs one hook of the program and logs its exceptions, because a failing hook must not hide the
// event that it is called for.
template <class Call>
void call_hook_noexcept(const char* kind, const Call& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kError, std::string(kind) + " hook failed: " + error.what());
  } catch (...) {
    base::log(base::LogLevel::kError, std::string(kind) + " hook failed with an unknown exception");
  }
}

}  // namespace torch::comms
