#pragma once

#include <memory>

#include <torchcomms/comm.hpp>

namespace torch::comms {

class HookRegistrations;

// Refuses operations on tensors that contain a NaN, before anything is sent. The error is
// CommError(kInvalidArgument) with the operation, the communicator, and "input" or "output".
// Infinity and integers are allowed. Batches are not checked. Each check reads the data once; on a
// GPU the host also waits for the result.
// Lifetime: the checks continue after this object is destroyed, until the communicator is.
// Threads: any.
class TC_API NanCheckHook {
 public:
  // `check_outputs` checks the content that an output has before the operation. A tensor that is
  // input and output is checked if either flag is set.
  explicit NanCheckHook(bool check_inputs = true, bool check_outputs = false);
  ~NanCheckHook();

  void registerWithComm(const std::shared_ptr<TorchComm>& comm);
  // Ends the checks. It is idempotent.
  void unregister();
  bool isEnabled() const;

 private:
  bool inputs_, outputs_;
  std::unique_ptr<HookRegistrations> registrations_;
};

}  // namespace torch::comms
