#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/types.hpp>

#include "backends/ctran/meeting.hpp"
#include "core/flight.hpp"

namespace torch::comms {
class TorchCommCtranAcrossHosts;
class TorchCommVendor;
}  // namespace torch::comms

namespace torch::comms::ctran {

// A connected communicator, and what its operations in flight share. Works do not own it.
struct Session {
  Connected connected;
  std::unique_ptr<Group> group;
  Placement placement;
  std::shared_ptr<TorchCommVendor> on_device;  // null where there is none
  std::string why_not_on_device;               // then
  // The same where the members are on several hosts: then it takes some operations alone.
  TorchCommCtranAcrossHosts* across_hosts = nullptr;
  std::shared_ptr<Flight> flight = std::make_shared<Flight>();

  // Memory of calls that go on after Ctrl-C ended their wait: kept until the group's end.
  void leave(std::vector<c10::Storage> memory) {
    std::lock_guard lock(mutex_);
    for (auto& storage : memory) left_.push_back(std::move(storage));
  }

  // Ends the group before the memory that it may still use.
  ~Session() { group.reset(); }

 private:
  std::mutex mutex_;  // guards left_
  std::vector<c10::Storage> left_;
};

// Ends the group if what is on the device has failed, so that the other members learn why.
void end_with_device(Session& session) noexcept;

// Ends it when what is in flight has ended: see core/retire.hpp.
void end(std::shared_ptr<Session> session, bool may_block);

// One operation as it was called: how long it may take, and what its limit is called.
struct Issue {
  std::string_view op;  // the public name; lives forever
  std::chrono::milliseconds limit;
  bool limit_is_own;  // timeout= of the call, not the communicator's default
};

// The engine's error of an operation; a kTimeout says which limit passed and how to raise it.
CommError explained(const CommError& error, const Issue& issue);

}  // namespace torch::comms::ctran
