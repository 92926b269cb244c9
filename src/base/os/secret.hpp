#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// A secret that ranks of a job share. By it a rank recognizes and refuses connections from other
// jobs and other programs. It does not protect against an attacker who can read the network
// traffic.
using Secret = std::array<std::byte, 16>;

// Both functions read the kernel's random generator (getrandom).
// Throws: CommError(kSystem).
TC_API Secret random_secret();
TC_API uint64_t random_number();
// Compares two secrets in a time that does not depend on their contents.
TC_API bool constant_time_equal(const Secret& a, const Secret& b) noexcept;

}  // namespace torch::comms::base
