#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::bootstrap {

// The operations that bootstrap needs of a key-value store. core adapts c10d stores to it; tests
// use a map. Writes of one caller become visible in the order of its calls.
//
// Throws: every method throws CommError: kTimeout when `limit` passes, kPeerFailed when the store
// is lost.
class TC_API KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Blocks: until the key exists, at most `limit`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds limit) = 0;
  // Returns whether all keys exist now.
  virtual bool has(const std::vector<std::string>& keys) = 0;
  // Adds `amount` atomically; a missing key counts as 0. Returns: the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  // Removes the key. Does nothing if the key is missing or the store cannot remove keys.
  virtual void remove(const std::string& key) = 0;
  // Returns a name for error texts: "tcp://host:port", "file /tmp/x".
  virtual std::string address() const = 0;
};

}  // namespace torch::comms::bootstrap
