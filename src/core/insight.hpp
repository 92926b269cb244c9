#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <torchcomms/base/export.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

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

  // What the event ring of this process knows the communicator by, from now on. Before its first
  // operation, and after each change of members.
  virtual void recorded_as(uint32_t) {}
};

}  // namespace torch::comms
