#pragma once

#include <system_error>
#include <thread>

namespace torch::comms::base {

// Runs `body`, which owns all it uses, on a thread of its own that nobody waits for. Where no
// thread is to be had it runs here: then the call takes as long as it takes.
template <class Body>
void run_apart(const Body& body) {
  try {
    std::thread(body).detach();
  } catch (const std::system_error&) {
    body();
  }
}

}  // namespace torch::comms::base
