#pragma once

#include "base/op_record.hpp"

namespace torch::comms {

// Sees the operations of a communicator begin and end, as the event ring does; each one that begins
// also ends. Any thread. Neither blocks nor fails.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  virtual void on_begin(const base::OpRecord& op) noexcept = 0;  // the backend gets it next
  virtual void on_end(const base::OpRecord& op) noexcept = 0;
};

}  // namespace torch::comms
