#pragma once

#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Returns the number (OpRecord::matching_sequence) of the operation that this thread is dispatching
// to a backend; 0: none. The backend keeps the number for the operation's errors.
TC_API uint64_t current_sequence() noexcept;

// Sets current_sequence() to `number` for its scope.
// Threads: create and destroy it on the same thread.
class TC_API ScopedSequence {
 public:
  explicit ScopedSequence(uint64_t number) noexcept;
  ~ScopedSequence();
  ScopedSequence(const ScopedSequence&) = delete;
  ScopedSequence& operator=(const ScopedSequence&) = delete;

 private:
  const uint64_t previous_;
};

}  // namespace torch::comms::base
