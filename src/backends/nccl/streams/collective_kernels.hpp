#pragma once

#include <optional>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {

// Kernels of ours that run some of a lane's operations in the library's place. Any thread.
class CollectiveKernels {
 public:
  virtual ~CollectiveKernels() = default;
  // Why they have stopped; nothing while all is well. Never waits. `context`: of the error.
  virtual std::optional<CommError> failure(const Context& context) const = 0;
  // Whether that is because ranks have called different things.
  virtual bool has_mismatch() const noexcept { return false; }
  // Why they wait in vain, by what is known beside them; asked now and then while an operation is
  // under way. May take microseconds.
  virtual std::optional<CommError> find_failed_peer(const Context&) { return std::nullopt; }
  // Ranks are lost while no operation is known to be under way: a replay, now or later, that waits
  // in vain ends, with that as its error.
  virtual void set_warning(const CommError&) {}
  // Ends what runs, and what is launched later. `why`: for other ranks that hear of it this way.
  virtual void abort(const CommError& why) noexcept = 0;
  // The lane has gone; graphs may have launches of them still, which are to end at once.
  virtual void release() noexcept {}
};

}  // namespace torch::comms::nccl
