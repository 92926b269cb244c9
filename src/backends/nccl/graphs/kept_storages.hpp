#pragma once

#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

namespace torch::comms::nccl {

// The memory of an operation's tensors, which lives as long as this list. It holds storages and not
// tensors, because storages are freed without Python.
using KeptStorages = c10::SmallVector<c10::Storage, 2>;

}  // namespace torch::comms::nccl
