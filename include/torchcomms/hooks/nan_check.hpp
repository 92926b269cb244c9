#pragma once

#include <memory>

#include <torchcomms/comm.hpp>

namespace torch::comms {

class HookRegistrations;

// Refuses operations on tensors that hold a NaN: CommError(kInvalidArgument) naming operation,
// communicator and "input" or "output", before anything is sent. Infinity and integers are fine.
// Batches are not looked into. Costs a pass over the data, on a GPU also a wait for it.
//
// Threads: any. Goes on when the object is gone, until the communicator is.
class TC_API NanCheckHook {
 public:
  // A tensor that is both is checked if either is asked for. `check_outputs` looks at what the
  // output holds before the operation.
  explicit NanCheckHook(bool check_inputs = true, bool check_outputs = false);
  ~NanCheckHook();

  void registerWithComm(const std::shared_ptr<TorchComm>& comm);
  // Ends the checks. Idempotent.
  void unregister();
  bool isEnabled() const;

 private:
  bool inputs_, outputs_;
  std::unique_ptr<HookRegistrations> registrations_;
};

}  // namespace torch::comms
