#pragma once

#include <string>

#include "bootstrap/exchange/meeting.hpp"

namespace torch::comms::bootstrap {

std::string contact_prefix(const Participant& self);

// What a failed rank raises. The first to fail leaves its reason in the store; ranks that only
// suffer from that, as those that find a peer gone, raise the same one. `where` is the address that
// this rank was waiting for, `dropped` what Reception counted.
CommError blame(KeyValue& store, const Participant& self, const Notice& failure,
                const std::string& where, const std::string& dropped);

}  // namespace torch::comms::bootstrap
