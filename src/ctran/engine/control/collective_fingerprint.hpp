#pragma once

#include <cstdint>

#include "ctran/engine/engine_call.hpp"
#include "monitor/fingerprint.hpp"

namespace torch::comms::ctran {

using monitor::Fingerprint;
using monitor::hash_bytes;

// Returns the fingerprint of a collective: what all ranks must agree on.
Fingerprint fingerprint_of(const EngineCall& call, uint64_t sequence) noexcept;

// Returns the message tag of the collective with this signature() and number; never 0. `scope`
// distinguishes groups.
uint32_t tag_of(uint64_t what, uint64_t sequence, uint64_t scope) noexcept;

}  // namespace torch::comms::ctran
