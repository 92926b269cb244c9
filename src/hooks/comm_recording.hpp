#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <torchcomms/hooks/flight_recorder.hpp>

#include "base/op_order.hpp"

namespace torch::comms::fr {

// What one communicator's hooks do for a recorder. They belong to the thread that calls the
// communicator; none of pre(), post() and unposted() throws.
class CommRecording {
 public:
  // `on_split` is told of every child.
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
    uint64_t sequence;  // 0: a collective's, which the group counts
  };

  // Whoever joins by reconfigure() has counted nothing before, so every membership is a group of
  // its own, under a name that all members give it.
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
  std::string prefix_;        // of profiling names: "gloo:"
  int64_t timeout_ms_;        // of operations that set none
  const bool counts_splits_;  // see TransportCapabilities
  const bool is_on_host_;     // CPU tensors
  int rank_ = -1, size_ = -1;
  std::optional<int64_t> membership_;  // that group_ is of
  base::OpOrder order_;                // of all but collectives, which the group counts
  std::vector<OpenOperation> open_;
  std::atomic<bool> logged_{false};
};

}  // namespace torch::comms::fr
