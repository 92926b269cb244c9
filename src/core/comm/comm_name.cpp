#include "core/comm/comm_name.hpp"

namespace torch::comms {

void require_name_length(const std::string& name, const Context& context) {
  if (name.size() > kMaxNameBytes)
    throw CommError(Errc::kInvalidArgument,
                    "the name has " + std::to_string(name.size()) + " bytes; the maximum is " +
                        std::to_string(kMaxNameBytes),
                    context);
}

}  // namespace torch::comms
