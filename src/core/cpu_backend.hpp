#pragma once

#include <chrono>
#include <string>

#include <c10/core/Device.h>
#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>

// What the backends for CPU tensors have in common.
namespace torch::comms {

// Every operation but windows, on every dtype that holds values (not quantised, not bits).
TC_API Capabilities cpu_capabilities();

// Throws CommError(kUnsupported), of new_comm, for another device.
TC_API void require_cpu(const at::Device& device, const std::string& backend,
                        const std::string& comm);

// `timeout`, or the library's default where none was given.
TC_API std::chrono::milliseconds usable_timeout(std::chrono::milliseconds timeout);

}  // namespace torch::comms
