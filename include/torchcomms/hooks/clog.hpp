#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// A call log: it writes one line of text for each call to a file. The file is truncated first and
// flushed after each line. docs/concepts/recorder.md describes the lines. An error in the log is
// logged and never fails an operation.
// Lifetime: logging continues after this object is destroyed, until the communicator is.
// Threads: any.
class TC_API ClogHook {
 public:
  // `events`: "ALL" or "LIFECYCLE" add the lines of start, end and wait. `verbose`: "buffers" adds
  // addresses.
  // Throws: CommError(kSystem) if `output` cannot be opened.
  ClogHook(const std::string& output, const std::vector<std::string>& events,
           const std::vector<std::string>& verbose = {});

  // Logs the calls of `comm` and of the communicators that are split from it.
  // Throws: CommError(kInvalidArgument) for a communicator that is registered already, after
  // another line about it.
  void registerWithComm(const std::shared_ptr<TorchComm>& comm);
  // Ends the logging. It is idempotent.
  void unregister();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch::comms
