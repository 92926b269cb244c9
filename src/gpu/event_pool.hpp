#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// Events of one device, used again and again. Any thread. Lives as long as one of its events.
class TC_API EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // `most`: how many idle events are kept.
  static std::shared_ptr<EventPool> make(const Runtime& runtime, size_t most);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event that goes back to the pool when it is let go of.
  class TC_API Lease {
   public:
    Lease() noexcept = default;
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { give_back(); }

    explicit operator bool() const noexcept { return pool_ != nullptr; }
    NativeEvent get() const noexcept { return event_; }
    // It is part of a capture, whose graph may live on: destroyed instead of used again.
    void spoil() noexcept { spoilt_ = true; }

   private:
    friend class EventPool;
    Lease(std::shared_ptr<EventPool> pool, NativeEvent event) noexcept
        : pool_(std::move(pool)), event_(event) {}
    void give_back() noexcept;

    std::shared_ptr<EventPool> pool_;
    NativeEvent event_ = nullptr;
    bool spoilt_ = false;
  };
  Lease take();

  size_t idle() const;

 private:
  EventPool(const Runtime& runtime, size_t most) : runtime_(runtime), most_(most) {}
  void put(NativeEvent event, bool spoilt) noexcept;

  const Runtime& runtime_;
  const size_t most_;
  mutable std::mutex mutex_;  // guards idle_
  std::vector<NativeEvent> idle_;
};

}  // namespace torch::comms::gpu
