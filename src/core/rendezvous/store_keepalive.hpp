#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Keeps a TCPStore that this process serves alive until no other process is connected to it, at
// most ten seconds, then releases it. Call it on clean shutdown when peers may still be using the
// store for a short time. It does not block if a thread can be created; process exit waits for it.
TC_API void keep_store_alive(c10::intrusive_ptr<c10d::Store> store);

}  // namespace torch::comms
