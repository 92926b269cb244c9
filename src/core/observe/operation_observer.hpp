#pragma once

#include <cstdint>
#include <memory>

#include <torchcomms/base/export.hpp>
#include <torchcomms/operation.hpp>

#include "base/op_record.hpp"
#include "core/work/hook_list.hpp"

namespace torch::comms {

class RemovableHandle;
class TorchComm;

// Sees the operations of a communicator: a backend's collective log, and flight recorders. An
// operation that begins also ends. The methods must neither block nor fail.
// Threads: on_start() and on_end() run on any thread, the others on the thread that calls the
// communicator.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  // Is called before the backend gets the operation.
  // Returns: a number that the observer chooses, the `token` of the calls below.
  virtual uint64_t on_begin(const base::OpRecord& record, const Operation& operation) noexcept = 0;
  // The operation has started. The call may come several times, also after on_end(); it may not
  // come for an operation that ends in its call.
  virtual void on_start(uint64_t /*token*/) noexcept {}
  // `ok`: the operation has completed; otherwise it has failed, or its call threw.
  virtual void on_end(uint64_t token, const base::OpRecord& record, bool ok) noexcept = 0;
  // A pre-hook threw, so the operation does not begin. The next operation gets the `sequence` of
  // `record`. The next one of its kind, for a message between the same ranks, gets the
  // `matching_sequence`.
  virtual void on_refused(const base::OpRecord& /*record*/,
                          const Operation& /*operation*/) noexcept {}
  // The operation that runs is a split() that has created `child`.
  virtual void on_split(const std::shared_ptr<TorchComm>& /*child*/) noexcept {}
};

using ObserverList = HookList<std::shared_ptr<OperationObserver>>;

// Adds an observer to `comm`. It stays registered if the handle is destroyed. Splits do not inherit
// observers.
TC_API std::unique_ptr<RemovableHandle> register_observer(
    TorchComm& comm, std::shared_ptr<OperationObserver> observer);

}  // namespace torch::comms
