#pragma once

#include <cstdint>
#include <string>

namespace torch::comms::transport {

// The user that a process runs as. Processes of different users do not share memory: they may
// neither read each other's memory nor open each other's files.
struct UserIdentity {
  std::string user_namespace;  // as /proc/self/ns/user names it
  uint32_t id = 0;             // effective user id in that namespace

  friend bool operator==(const UserIdentity&, const UserIdentity&) = default;
};

// Returns: the user of this process.
UserIdentity current_user();

}  // namespace torch::comms::transport
