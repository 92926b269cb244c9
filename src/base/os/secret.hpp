#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Known to the ranks of a job and nobody else. It keeps strangers and other jobs out; it is no
// defence against somebody who reads the network.
using Secret = std::array<std::byte, 16>;

// From the kernel's random numbers. Throws CommError(kSystem).
TC_API Secret random_secret();
TC_API uint64_t random_number();
// Takes as long for equal secrets as for different ones.
TC_API bool constant_time_equal(const Secret& a, const Secret& b) noexcept;

}  // namespace torch::comms::base
