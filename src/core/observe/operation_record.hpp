#pragma once

#include <exception>
#include <string_view>

#include <torchcomms/base/export.hpp>
#include <torchcomms/operation.hpp>

#include "base/op_record.hpp"

namespace torch::comms {

// Makes the record of an operation for the event ring and for errors. The caller fills in `comm`,
// `sequence`, `op_id` and `matching_sequence`.
template <class Op>
base::OpRecord make_record(const Op& op) noexcept;

// Returns: the meaning of the numbers in records, for tracing::RingHeader. It has one line each for
// operations, dtypes, reductions and errors, such as "ops send recv ...". The word of a number
// stands at its position, or "?" if it has none.
TC_API std::string_view record_vocabulary();

// Returns: the number of an error in tracing::Event; 0 for null.
uint8_t error_number(const std::exception_ptr& error) noexcept;

}  // namespace torch::comms
