#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// A call log: one line of text a call, in a file that is truncated first and flushed after each
// line. docs/concepts/recorder.md lists the lines.
//
// Threads: any. Never fails an operation: what goes wrong is logged. Goes on when the object is
// gone, until the communicator is.
class TC_API ClogHook {
 public:
  // `events`: "ALL" or "LIFECYCLE" add the lines of start, end and wait. `verbose`: "buffers" adds
  // addresses. Throws CommError(kSystem) where `output` cannot be opened.
  ClogHook(const std::string& output, const std::vector<std::string>& events,
           const std::vector<std::string>& verbose = {});

  // Splits register themselves. Throws CommError(kInvalidArgument) for a communicator that is
  // registered, after another line about it.
  void registerWithComm(const std::shared_ptr<TorchComm>& comm);
  // Ends the logging. Idempotent.
  void unregister();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch::comms
