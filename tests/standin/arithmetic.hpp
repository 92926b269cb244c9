#pragma once

#include <cstddef>

#include "vendor/abi.hpp"

// Reductions, one element after the other, in the element type.
namespace torch::comms::standin {

using nccl::abi::DataType;
using nccl::abi::RedOp;

size_t size_of(DataType dtype);

// into[i] = into[i] op from[i]; kAvg adds. kMin and kMax drop a NaN, as NCCL does.
void combine(void* into, const void* from, size_t count, DataType dtype, RedOp op);
// data[i] = data[i] * factor[0].
void scale(void* data, const void* factor, size_t count, DataType dtype);
// data[i] = data[i] / parts; integers are cut toward zero.
void divide(void* data, int parts, size_t count, DataType dtype);

}  // namespace torch::comms::standin
