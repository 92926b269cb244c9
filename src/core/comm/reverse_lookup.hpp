#pragma once

#include <memory>
#include <string>

namespace torch::comms {

// Measures how long the name server takes to find the name for the address of `host`. torch's
// stores make this query at every connection, on the client and in the server's only loop.
//
// Lifetime: the lookup continues if it outlives this object.
class ReverseLookupTimer {
 public:
  // Starts the lookup on a thread of its own. An empty `host` starts none.
  explicit ReverseLookupTimer(const std::string& host);

  // Returns: "the name server took 2.1 s for 127.0.0.1", or "the name server has not answered for
  // 127.0.0.1 within 3 s"; empty while that is less than 0.2 s.
  std::string format_if_slow() const;

 private:
  struct LookupMeasurement;
  std::shared_ptr<LookupMeasurement> measurement_;  // shared with the thread
};

}  // namespace torch::comms
