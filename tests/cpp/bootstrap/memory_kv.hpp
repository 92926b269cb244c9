#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "bootstrap/key_value_store.hpp"

// A key-value store in memory, shared by the ranks of a test, which are threads.
struct SharedMap {
  std::mutex mutex;  // guards values
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};

// One rank's view of it, which counts the rank's messages and can lose its connection.
class MemoryKeyValue final : public torch::comms::bootstrap::KeyValueStore {
 public:
  explicit MemoryKeyValue(SharedMap& map) : map_(map) {}

  std::atomic<int> messages = 0;
  int lost_after = -1;  // messages until the connection is lost; -1: never

  void set(const std::string& key, const std::string& value) override {
    send();
    const std::lock_guard lock(map_.mutex);
    map_.values[key] = value;
    map_.changed.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    send();
    std::unique_lock lock(map_.mutex);
    if (!map_.changed.wait_for(lock, limit, [&] { return map_.values.contains(key); }))
      throw torch::comms::CommError(torch::comms::Errc::kTimeout, "no key " + key);
    return map_.values[key];
  }
  bool has(const std::vector<std::string>& keys) override {
    send();
    const std::lock_guard lock(map_.mutex);
    for (const auto& key : keys)
      if (!map_.values.contains(key)) return false;
    return true;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    send();
    const std::lock_guard lock(map_.mutex);
    auto& value = map_.values[key];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + amount);
    map_.changed.notify_all();
    return std::stoll(value);
  }
  void remove(const std::string& key) override {
    send();
    const std::lock_guard lock(map_.mutex);
    map_.values.erase(key);
  }
  std::string address() const override { return "memory"; }

 private:
  void send() {
    if (lost_after >= 0 && messages >= lost_after)
      throw torch::comms::CommError(torch::comms::Errc::kPeerFailed, "lost the store memory");
    ++messages;
  }
  SharedMap& map_;
};
