#pragma once

#include <exception>
#include <string>

#include "base/os/log.hpp"

namespace torch::comms {

// Runs one hook of a user. One that fails is logged: it must not hide what it was told of.
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
