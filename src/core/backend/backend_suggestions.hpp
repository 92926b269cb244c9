#pragma once

#include <functional>
#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>

namespace torch::comms {

// The end of an error text, for what one backend lacks: "; backend 'ctran' can", "; backends
// 'ctran' and 'nccl' can", or "" where none can. Looks at every installed backend, those in
// Python and those that only pretend aside.
TC_API std::string backends_supporting(const std::function<bool(const Capabilities&)>& can);

}  // namespace torch::comms
