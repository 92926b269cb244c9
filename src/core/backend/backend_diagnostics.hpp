#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

class OperationObserver;

// The optional interface of a backend for describe(), memory usage, failures without a work, and
// observers. A backend derives from it in addition to TorchCommBackend.
class TC_API BackendDiagnostics {
 public:
  virtual ~BackendDiagnostics();

  // Returns: facts for describe(), by subject.
  virtual std::map<std::string, std::string> describe_entries() const = 0;

  // Returns: bytes of device memory by purpose, for describe(). The numbers are differences between
  // two readings of the device's free memory, which other processes may change, too.
  virtual std::map<std::string, uint64_t> memory_usage() const = 0;

  // Registers a callback for failures that have no TorchWork, such as an operation in a CUDA graph
  // replay. The callback receives a placeholder work that has failed. Set it before the first
  // operation.
  // Threads: runs on the thread that detects the failure.
  virtual void set_unowned_failure_callback(std::function<void(TorchWork&)> callback) = 0;

  // Returns: a number that all members share and that no other communicator has; 0 if it is not
  // connected. The communicator asks when it asks for operation_observer().
  virtual uint64_t comm_identity() const = 0;

  // Returns: the observer of operations from now on; null if there is none. The communicator asks
  // before the first operation, and after each change of members.
  virtual std::shared_ptr<OperationObserver> operation_observer() { return nullptr; }
};

}  // namespace torch::comms
