#pragma once

#include "base/op_record.hpp"

namespace torch::comms {

// Sees the operations of a communicator begin and end, as the event ring does; each one that begins
// also ends. Any thread. Neither blocks nor fails.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual void begins(const base::OpRecord& op) noexcept = 0;  // the backend gets it next
  virtual void ends(const base::OpRecord& op) noexcept = 0;
};

}  // namespace torch::comms
