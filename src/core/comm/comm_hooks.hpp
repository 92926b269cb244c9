#pragma once

#include <cstdint>

#include <torchcomms/comm.hpp>

#include "core/observe/operation_observer.hpp"
#include "core/work/hook_list.hpp"

namespace torch::comms {

// The hooks and observers of a communicator.
struct TorchComm::Hooks {
  HookList<PreHook> pre;
  HookList<PostHook> post;
  ObserverList observers;
  uint64_t backend_observer = 0;  // the id of the backend's observer in the list; 0: none

  // Removes the hooks after finalize(). The observers stay: an operation whose pre-hook called
  // finalize() still begins, and fails.
  void clear_operation_hooks() {
    pre.clear();
    post.clear();
  }
};

}  // namespace torch::comms
