#pragma once

#include <optional>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {

// Kernels of torchcomms that run some operations of a LaunchQueue in place of the library.
//
// Threads: any.
class CollectiveKernels {
 public:
  virtual ~CollectiveKernels() = default;
  // Returns: why the kernels have stopped; nothing while all is well. Never blocks. `context`
  // becomes the error's context.
  virtual std::optional<CommError> failure(const Context& context) const = 0;
  // True if the kernels have stopped because ranks called different operations.
  virtual bool has_mismatch() const noexcept { return false; }
  // Returns: why running kernels can never complete, because a peer has failed; nothing if all
  // peers may still answer. The LaunchQueue asks every 100 ms while an operation is in flight. May
  // take microseconds.
  virtual std::optional<CommError> find_failed_peer(const Context&) { return std::nullopt; }
  // Reports that a peer has failed while no operation is known to be in flight. A graph replay that
  // waits for that peer, now or later, then ends with this error.
  virtual void set_warning(const CommError&) {}
  // Aborts running kernels and all that are launched later. `why` is passed to peers that learn of
  // the abort through the kernels.
  virtual void abort(const CommError& why) noexcept = 0;
  // The LaunchQueue has been destroyed. Graphs may still hold launches of these kernels, which must
  // end at once.
  virtual void release() noexcept {}
};

}  // namespace torch::comms::nccl
