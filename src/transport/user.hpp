#pragma once

#include <cstdint>
#include <string>

namespace torch::comms::transport {

// Who a process runs as. Processes of different users do not share memory: one may not look into
// the other, nor open what the other has.
struct User {
  std::string space;  // the user namespace
  uint32_t id = 0;    // the effective user there

  friend bool operator==(const User&, const User&) = default;
};

// Of this process.
User own_user();

}  // namespace torch::comms::transport
