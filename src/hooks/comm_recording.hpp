#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torchcomms/hooks/flight_recorder.hpp>

#include "base/op_order.hpp"

namespace torch::comms::fr {

// Records the operations of one communicator in a flight recorder. pre(), post() and unposted() are
// the communicator's hooks and never throw.
// Threads: the thread that calls the communicator.
class CommRecording {
 public:
  // `on_split` is called with every child communicator.
  CommRecording(std::shared_ptr<FlightRecorder> recorder, const std::shared_ptr<TorchComm>& comm,
                std::function<void(const std::shared_ptr<TorchComm>&)> on_split);

  void pre(size_t op_id, const PreHookArgs& args) noexcept;
  void post(size_t op_id, const PostHookArgs& args) noexcept;
  void unposted(size_t op_id, Unposted why) noexcept;

 private:
  // An operation between its pre-hook and its post-hook.
  struct OpenOperation {
    size_t op_id;
    uint64_t entry;
    uint64_t sequence;  // 0 for a collective, which the group counts
  };

  // Begins a new recorded group when reconfigure() has changed the members. A rank that joins has
  // counted no operations before, so each set of members is a group of its own, with a name that is
  // equal on all members.
  void update_membership();
  template <class Op>
  Entry describe(size_t op_id, const Op& op);
  void begin(size_t op_id, Entry entry, bool runs_now);
  std::optional<OpenOperation> remove_open(size_t op_id);
  void end(size_t op_id, const PostHookArgs& args);

  std::shared_ptr<FlightRecorder> recorder_;
  std::weak_ptr<TorchComm> comm_;
  std::function<void(const std::shared_ptr<TorchComm>&)> on_split_;
  std::shared_ptr<RecordedGroup> group_;
  std::string prefix_;        // of profiling names, such as "gloo:"
  int64_t timeout_ms_;        // of operations without a timeout of their own
  const bool counts_splits_;  // see Capabilities
  const bool is_on_host_;     // CPU tensors
  int rank_ = -1, size_ = -1;
  std::optional<int64_t> membership_;  // the membership of group_
  base::OpOrder order_;  // of all operations except collectives, which the group counts
  std::vector<OpenOperation> open_;
  std::atomic<bool> logged_{false};
};

}  // namespace torch::comms::fr
