#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Lets go of a TCPStore that this process serves as soon as no other process is connected to it any
// more, after ten seconds at the latest; the end of the process waits for that, too. For who leaves
// in good order a store where others may still meet, who are then soon through. Returns at once
// where a thread is to be had.
TC_API void keep_store_alive(c10::intrusive_ptr<c10d::Store> store);

}  // namespace torch::comms
