#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// A shared secret of the ranks of a job. It rejects connections of strangers and other jobs. It
// does not protect against an attacker who can read the network traffic.
using Secret = std::array<std::byte, 16>;

// Both draw from the kernel's random generator (getrandom).
// Throws: CommError(kSystem).
TC_API Secret random_secret();
TC_API uint64_t random_number();
// Compares two secrets in a time that does not depend on their contents.
TC_API bool constant_time_equal(const Secret& a, const Secret& b) noexcept;

}  // namespace torch::comms::base
