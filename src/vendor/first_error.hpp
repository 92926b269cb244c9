#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {

// The first error of a communicator, after which it cannot go on.
// Threads: any.
class FirstError {
 public:
  // Stores `error` if there is none yet. Returns: whether it was stored.
  bool set(const CommError& error) {
    std::lock_guard lock(mutex_);
    if (error_) return false;
    error_ = std::make_exception_ptr(error);
    is_set_.store(true, std::memory_order_release);
    return true;
  }
  explicit operator bool() const noexcept { return is_set_.load(std::memory_order_acquire); }
  std::exception_ptr error() const {
    if (!*this) return nullptr;
    std::lock_guard lock(mutex_);
    return error_;
  }
  std::optional<CommError> reason() const {
    try {
      check();
    } catch (const CommError& error) {
      return error;
    }
    return std::nullopt;
  }
  // Throws the error, if there is one.
  void check() const {
    if (*this) std::rethrow_exception(error());
  }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;  // guards error_
  std::exception_ptr error_;
};

}  // namespace torch::comms::nccl
