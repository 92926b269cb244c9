#pragma once

#include <string>

#include "bootstrap/exchange/meeting.hpp"

namespace torch::comms::bootstrap {

std::string contact_prefix(const Participant& self);
std::string secret_key(const Participant& self);

// What a failed rank raises. The first to fail leaves its reason in the store; ranks that only
// suffer from that, as those that find a peer gone, raise the same one. `where` is the address that
// this rank was waiting for, `dropped` what Reception counted.
CommError blame(KeyValueStore& store, const Participant& self, const Notice& failure,
                const std::string& where, const std::string& dropped);

// How the other ranks hear that `error` keeps this one from taking part. A limit that has passed,
// or a peer that has failed, is told as it is.
Notice told_to_others(const Participant& self, const CommError& error);

// Of a rank that is about to raise that. Rank 0, whose process often serves the store, returns when
// the others have read it, too; a second later at most.
void part(KeyValueStore& store, const Participant& self) noexcept;

}  // namespace torch::comms::bootstrap
