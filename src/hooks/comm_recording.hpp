#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <torchcomms/hooks/flight_recorder.hpp>

#include "core/observe/operation_observer.hpp"

namespace torch::comms::fr {

// Records the operations of one communicator in a flight recorder. The token of an operation is the
// id of its entry.
class CommRecording final : public OperationObserver {
 public:
  // `on_split` is called with every child communicator.
  CommRecording(std::shared_ptr<FlightRecorder> recorder, const std::shared_ptr<TorchComm>& comm,
                std::function<void(const std::shared_ptr<TorchComm>&)> on_split);

  uint64_t on_begin(const base::OpRecord& record, const Operation& operation) noexcept override;
  void on_start(uint64_t entry) noexcept override;
  void on_end(uint64_t entry, const base::OpRecord& record, bool ok) noexcept override;
  void on_refused(const base::OpRecord& record, const Operation& operation) noexcept override;
  void on_split(const std::shared_ptr<TorchComm>& child) noexcept override;

 private:
  // Begins a new recorded group when reconfigure() has changed the members. A rank that joins has
  // counted no operations before, so each set of members is a group of its own, with a name that is
  // equal on all members.
  void update_membership();
  template <class Op>
  Entry describe(const base::OpRecord& record, const Op& op) const;

  std::shared_ptr<FlightRecorder> recorder_;
  std::weak_ptr<TorchComm> comm_;
  std::function<void(const std::shared_ptr<TorchComm>&)> on_split_;
  std::shared_ptr<RecordedGroup> group_;
  std::string prefix_;     // of profiling names, such as "gloo:"
  int64_t timeout_ms_;     // of operations without a timeout of their own
  const bool is_on_host_;  // CPU tensors
  int rank_ = -1, size_ = -1;
  std::optional<int64_t> membership_;  // the membership of group_
  std::atomic<bool> logged_{false};
};

}  // namespace torch::comms::fr
