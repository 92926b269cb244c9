#pragma once

#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// The number (OpRecord::order) of the operation that this thread hands to a backend, which keeps it
// for the operation's errors; 0: none.
TC_API uint64_t issued_number() noexcept;

// It is `number` until this is destroyed, by the same thread.
class TC_API IssuedNumber {
 public:
  explicit IssuedNumber(uint64_t number) noexcept;
  ~IssuedNumber();
  IssuedNumber(const IssuedNumber&) = delete;
  IssuedNumber& operator=(const IssuedNumber&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace torch::comms::base
