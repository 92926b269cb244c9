#pragma once

#include <chrono>

#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>

// What the backends for CPU tensors have in common.
namespace torch::comms {

// Every operation but windows, on every dtype that holds values (not quantised, not bits).
TC_API Capabilities cpu_capabilities();

// The same for a backend whose communicators may be on a GPU: see core/staging.hpp.
TC_API Capabilities staged_capabilities();

// `timeout`, or the library's default where none was given.
TC_API std::chrono::milliseconds usable_timeout(std::chrono::milliseconds timeout);

}  // namespace torch::comms
