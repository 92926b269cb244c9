#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

class Witness;

// What some backends can tell beyond TorchCommBackend, which they derive from besides.
class TC_API Insight {
 public:
  virtual ~Insight();

  // Facts for describe(), by what they are about.
  virtual std::map<std::string, std::string> notes() const = 0;

  // Bytes of the device's memory, by what they are for, as far as that is known: what was taken
  // between two looks at the device, which others may use, too. For describe().
  virtual std::map<std::string, uint64_t> memory_usage() const = 0;

  // Operations may fail that nobody has a work of, as those that a graph replays. `met` gets one in
  // their place that has failed, on the thread that found it. Set before the first operation.
  virtual void on_unseen_failure(std::function<void(TorchWork&)> met) = 0;

  // A number that its members share, and no other communicator has; 0: it is not connected. Asked
  // as witness() is.
  virtual uint64_t identity() const = 0;

  // Who sees its operations from now on; nullptr: nobody. Asked before the first one, and after
  // each change of members.
  virtual std::shared_ptr<Witness> witness() { return nullptr; }
};

}  // namespace torch::comms
