#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace torch::comms {

// A list of callbacks, or observers, of one kind, in order of registration. A callback may add or
// remove callbacks, including itself; the change takes effect at the next call.
// Threads: any.
template <class Function>
class HookList {
 public:
  using Entries = std::vector<std::pair<uint64_t, Function>>;

  bool empty() const noexcept { return size_.load(std::memory_order_acquire) == 0; }

  uint64_t add(Function function) {
    std::shared_ptr<const Entries> before;
    std::lock_guard lock(mutex_);
    auto next = std::make_shared<Entries>(*entries_);
    next->emplace_back(++last_id_, std::move(function));
    before = publish(std::move(next));
    return last_id_;
  }

  void remove(uint64_t id) {
    // `before` outlives the lock: destroying a callback may wait for a thread that needs the lock,
    // or call this list again.
    std::shared_ptr<const Entries> before;
    std::lock_guard lock(mutex_);
    auto next = std::make_shared<Entries>(*entries_);
    std::erase_if(*next, [id](const auto& entry) { return entry.first == id; });
    before = publish(std::move(next));
  }

  void clear() {
    std::shared_ptr<const Entries> before;  // outlives the lock, as in remove()
    std::lock_guard lock(mutex_);
    before = publish(std::make_shared<Entries>());
  }

  // Returns: the entries at this time.
  std::shared_ptr<const Entries> snapshot() const {
    std::lock_guard lock(mutex_);
    return entries_;
  }

  template <class... Args>
  void call(const Args&... args) const {
    const auto entries = snapshot();
    for (const auto& [id, function] : *entries) function(args...);
  }

 private:
  // Returns: the previous entries.
  std::shared_ptr<const Entries> publish(std::shared_ptr<const Entries> entries) {
    size_.store(entries->size(), std::memory_order_release);
    return std::exchange(entries_, std::move(entries));
  }

  mutable std::mutex mutex_;  // guards entries_ and last_id_
  std::shared_ptr<const Entries> entries_ = std::make_shared<Entries>();
  uint64_t last_id_ = 0;
  std::atomic<size_t> size_{0};  // size of *entries_, so that an empty list costs one load
};

}  // namespace torch::comms
