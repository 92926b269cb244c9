#pragma once

#include <exception>
#include <string_view>

#include <torchcomms/base/export.hpp>
#include <torchcomms/operation.hpp>

#include "base/op_record.hpp"

namespace torch::comms {

// The numbers of an operation, for the event ring and errors: one visitor per shape of operation.
// `comm`, `sequence`, `op_id` and `order` are the caller's to fill.
template <class Op>
base::OpRecord make_record(const Op& op) noexcept;

// What the numbers in records mean, for tracing::RingHeader: a line each of operations, dtypes,
// reductions and errors, "ops send recv ...", a number's word at its place, "?" where it has none.
TC_API std::string_view record_vocabulary();

// A failure as tracing::Event has it; 0 for null.
uint8_t error_number(const std::exception_ptr& error) noexcept;

}  // namespace torch::comms
