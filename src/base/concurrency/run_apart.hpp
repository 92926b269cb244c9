#pragma once

#include <system_error>
#include <thread>

namespace torch::comms::base {

// Runs `body` on a detached thread; `body` must own everything it uses.
// Blocks: only if no thread can be started; then the caller runs `body` itself.
template <class Body>
void run_apart(const Body& body) {
  try {
    std::thread(body).detach();
  } catch (const std::system_error&) {
    body();
  }
}

}  // namespace torch::comms::base
