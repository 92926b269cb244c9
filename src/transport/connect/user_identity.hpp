#pragma once

#include <cstdint>
#include <string>

namespace torch::comms::transport {

// Who a process runs as. Processes of different users do not share memory: one may not look into
// the other, nor open what the other has.
struct UserIdentity {
  std::string user_namespace;  // the user namespace
  uint32_t id = 0;             // the effective user there

  friend bool operator==(const UserIdentity&, const UserIdentity&) = default;
};

// Of this process.
UserIdentity current_user();

}  // namespace torch::comms::transport
