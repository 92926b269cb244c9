#pragma once

#include <memory>

#include "core/device.hpp"
#include "nccl/table.hpp"

namespace torch::comms::nccl {

// The type of device that a vendor's tensors are on, where its library has not said that it works
// on host memory.
at::DeviceType device_type_of(const Vendor& vendor);

// Resolves a device without an index by `rank`, and makes it current. Throws CommError without
// context: kUnsupported for a device that the library does not work on, kBackendUnavailable for
// one that is not there.
std::shared_ptr<Device> open_device(const Table& library, at::Device wanted, int rank,
                                    bool high_priority_stream, size_t most_events);

}  // namespace torch::comms::nccl
