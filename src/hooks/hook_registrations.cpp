#include "hooks/hook_registrations.hpp"

#include <torchcomms/base/error.hpp>

namespace torch::comms {

void require_comm(const std::shared_ptr<TorchComm>& comm) {
  if (!comm)
    throw CommError(Errc::kInvalidArgument, "comm is None, expected a communicator",
                    {.op = "register_with_comm"});
}

}  // namespace torch::comms
