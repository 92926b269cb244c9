#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// The communicators that an observer is registered with. Does not keep communicators alive.
// Threads: any.
class HookRegistrations {
 public:
  using Handles = std::vector<std::unique_ptr<RemovableHandle>>;

  void add(const std::shared_ptr<TorchComm>& comm, Handles handles) {
    std::lock_guard lock(mutex_);
    std::erase_if(comms_, [](const HookedComm& row) { return row.comm.expired(); });
    comms_.push_back({comm, std::move(handles)});
    any_ = true;
  }

  bool has(const std::shared_ptr<TorchComm>& comm) const {
    std::lock_guard lock(mutex_);
    return std::ranges::any_of(comms_,
                               [&](const HookedComm& row) { return row.comm.lock() == comm; });
  }

  // Returns: whether a communicator was added since the last remove_all().
  bool has_any() const {
    std::lock_guard lock(mutex_);
    return any_;
  }

  void remove_all() {
    std::vector<HookedComm> rows;
    {
      std::lock_guard lock(mutex_);
      rows.swap(comms_);
      any_ = false;
    }
    for (const auto& row : rows)
      for (const auto& handle : row.handles) handle->remove();
  }

 private:
  struct HookedComm {
    std::weak_ptr<TorchComm> comm;
    Handles handles;
  };
  mutable std::mutex mutex_;  // guards both members below
  std::vector<HookedComm> comms_;
  bool any_ = false;
};

// Throws: CommError(kInvalidArgument) for a null pointer.
void require_comm(const std::shared_ptr<TorchComm>& comm);

}  // namespace torch::comms
