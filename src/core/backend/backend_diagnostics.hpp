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

// What some backends can tell beyond TorchCommBackend, which they derive from besides.
class TC_API BackendDiagnostics {
 public:
  virtual ~BackendDiagnostics();

  // Facts for describe(), by what they are about.
  virtual std::map<std::string, std::string> describe_entries() const = 0;

  // Bytes of the device's memory, by what they are for, as far as that is known: what was taken
  // between two looks at the device, which others may use, too. For describe().
  virtual std::map<std::string, uint64_t> memory_usage() const = 0;

  // Operations may fail that nobody has a work of, as those that a graph replays. `met` gets one in
  // their place that has failed, on the thread that found it. Set before the first operation.
  virtual void set_unowned_failure_callback(std::function<void(TorchWork&)> met) = 0;

  // A number that its members share, and no other communicator has; 0: it is not connected. Asked
  // as operation_observer() is.
  virtual uint64_t comm_identity() const = 0;

  // Who sees its operations from now on; nullptr: nobody. Asked before the first one, and after
  // each change of members.
  virtual std::shared_ptr<OperationObserver> operation_observer() { return nullptr; }
};

}  // namespace torch::comms
