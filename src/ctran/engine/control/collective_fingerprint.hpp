#pragma once

#include <cstdint>

#include "ctran/engine/engine_call.hpp"
#include "monitor/fingerprint.hpp"

namespace torch::comms::ctran {

using monitor::Fingerprint;
using monitor::hash_bytes;

// Of a collective of `size` ranks.
Fingerprint fingerprint_of(const EngineCall& call, uint64_t sequence) noexcept;

// Of messages of signature() as number `sequence`; never 0. `scope` keeps groups apart.
uint32_t tag_of(uint64_t what, uint64_t sequence, uint64_t scope) noexcept;

}  // namespace torch::comms::ctran
