#pragma once

#include <functional>
#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>

namespace torch::comms {

// Returns: the end of an error text about an ability that one backend lacks: "; backend 'ctran'
// can", "; backends 'ctran' and 'nccl' can", or "" if none can. It asks every installed backend
// except Python backends and those that do not check arguments (fake).
TC_API std::string backends_supporting(const std::function<bool(const Capabilities&)>& can);

}  // namespace torch::comms
