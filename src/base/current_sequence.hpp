#pragma once

#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// The number (OpRecord::order) of the operation that this thread hands to a backend, which keeps it
// for the operation's errors; 0: none.
TC_API uint64_t current_sequence() noexcept;

// It is `number` until this is destroyed, by the same thread.
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
