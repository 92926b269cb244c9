#include "transport/transport.hpp"

namespace torch::comms::transport {

WaitResult Transport::wait(const Request& request, Deadline deadline) {
  Transport* const self = this;
  return wait_until({&self, 1}, abort_signal(), deadline, wait_policy(),
                    [&] { return request.is_done(); });
}

CommError Transport::error(const Request& request, std::string_view op) const {
  const Context context{.op = std::string(op), .rank = endpoint().rank, .peer = request.peer()};
  std::string why;
  if (request.error() == Errc::kMismatch)
    why = "size or tag mismatch with the peer, or the peer has closed the memory (message: " +
          std::to_string(request.bytes()) + " bytes)";
  else if (request.error() == Errc::kForked)
    why = "this transport belongs to the parent process; a forked child cannot use it";
  else if (const auto* failed = failure(request.peer()))
    why = failed->reason;
  else
    why = "abort() was called";
  return CommError(request.error(), why, context);
}

}  // namespace torch::comms::transport
