#pragma once

#include "base/op_record.hpp"

namespace torch::comms {

// Sees the operations of a communicator begin and end, as the event ring does. Each operation that
// begins also ends. The methods must neither block nor fail.
// Threads: any.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual void on_begin(
      const base::OpRecord& op) noexcept = 0;  // called before the backend gets the operation
  virtual void on_end(const base::OpRecord& op) noexcept = 0;
};

}  // namespace torch::comms
