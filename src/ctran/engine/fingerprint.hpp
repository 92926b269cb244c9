#pragma once

#include <cstdint>

#include "ctran/engine/call.hpp"
#include "side/fingerprint.hpp"

namespace torch::comms::ctran {

using side::Fingerprint;
using side::hash;

// Of a collective of `size` ranks.
Fingerprint fingerprint_of(const Call& call, uint64_t sequence) noexcept;

// Of messages of what() as number `sequence`; never 0. `scope` keeps groups apart.
uint32_t tag_of(uint64_t what, uint64_t sequence, uint64_t scope) noexcept;

}  // namespace torch::comms::ctran
