#pragma once

#include <torchcomms/operation.hpp>

#include "base/op_record.hpp"

namespace torch::comms {

// The numbers of an operation, for the event ring and errors: one visitor per shape of operation.
// `comm`, `sequence` and `op_id` are the caller's to fill.
template <class Op>
base::OpRecord make_record(const Op& op) noexcept;

}  // namespace torch::comms
