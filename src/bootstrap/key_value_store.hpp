#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::bootstrap {

// The little that bootstrap needs of a key-value store. core adapts c10d stores to it; tests use a
// map.
//
// Order: what one caller writes becomes visible in the order of its calls.
// Failure: every method throws CommError: kTimeout when `limit` passes, kPeerFailed when the store
// is gone.
class TC_API KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key, at most `limit`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
  // True if all keys are there now.
  virtual bool has(const std::vector<std::string>& keys) = 0;
  // Adds and returns the sum, atomically; a missing key counts as 0.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // Does nothing where the key is missing or the store cannot remove.
  virtual void remove(const std::string& key) = 0;
  // "tcp://host:port", "file /tmp/x": the word for error texts.
  virtual std::string address() const = 0;
};

}  // namespace torch::comms::bootstrap
