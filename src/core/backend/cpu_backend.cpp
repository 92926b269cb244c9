#include "core/backend/cpu_backend.hpp"

#include <c10/core/ScalarType.h>

#include "base/text/hash.hpp"

namespace torch::comms {

Capabilities cpu_capabilities() {
  auto can = Capabilities::all();
  can.operations.reset(static_cast<size_t>(OpName::new_window));
  can.devices.reset();
  can.devices.set(static_cast<size_t>(c10::DeviceType::CPU));
  for (size_t i = 0; i < can.dtypes.size(); ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (c10::isQIntType(dtype) || c10::isBitsType(dtype) || dtype == c10::ScalarType::Undefined)
      can.dtypes.reset(i);
  }
  return can;
}

Capabilities staged_capabilities() {
  auto can = cpu_capabilities();
  can.staging = true;
  can.devices.set(static_cast<size_t>(c10::DeviceType::CUDA));
  return can;
}

std::chrono::milliseconds timeout_or_default(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? timeout : kDefaultTimeout;
}

std::chrono::milliseconds split_timeout(const CommOptions& options) {
  const bool is_own = options.timeout_is_given || options.timeout != CommOptions().timeout;
  return is_own ? options.timeout : kNoTimeout;
}

uint64_t split_identity(uint64_t parent, const std::vector<int>& ranks, uint64_t number) {
  uint64_t hash = base::fnv1a_add(base::fnv1a_add(base::kFnvOffsetBasis, parent), number);
  for (const int rank : ranks) hash = base::fnv1a_add(hash, static_cast<uint64_t>(rank));
  return hash;
}

std::string split_comm_name(const std::string& name, const std::vector<int>& ranks) {
  return name + "_" + std::to_string(*std::ranges::min_element(ranks));
}

}  // namespace torch::comms
