#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/gloo/call.hpp"
#include "backends/gloo/group.hpp"

namespace torch::comms::gloo {

// What is left to do on this rank when Gloo is done: divide, narrow, unpack. Owns what it uses.
using Finish = std::function<void()>;

// An asynchronous collective: one or several operations of Gloo, then `finish`. Gloo's threads
// complete it; it keeps itself and its tensors alive until then, and never the communicator.
class CollectiveWork final : public TorchWork {
 public:
  static c10::intrusive_ptr<CollectiveWork> start(const Call& call,
                                                  std::vector<NativeWorkPtr> natives, Finish finish,
                                                  const Group& group);

  // Use start().
  CollectiveWork(const Call& call, std::vector<NativeWorkPtr> natives, Finish finish,
                 const Group& group);

  // Returns at most kWriteGrace after the limit, counted from the call, and 0.6 s later where the
  // others are asked where they are.
  void wait() override;
  std::chrono::milliseconds getTimeout() const override { return call_.limit; }

 protected:
  void poll() noexcept override { look(); }

 private:
  // Ends it if the others have, or call something else.
  void look() noexcept;
  void native_done(const std::exception_ptr& error) noexcept;
  void end(std::exception_ptr error) noexcept;

  const Call call_;
  const uint64_t fork_generation_;
  std::vector<NativeWorkPtr> natives_;
  Finish finish_;
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<common::PeerMonitor> others_;
  InFlightCounter::Token ticket_;
  std::atomic<size_t> open_;  // natives not done yet
  std::mutex mutex_;          // guards error_
  std::exception_ptr error_;  // the first of the natives'
};

// The same for a synchronous call: blocks until Gloo is done, on the calling thread. Throws
// CommError, kTimeout as above.
void wait_here(const Call& call, const NativeWorkPtr& native, const Group& group);

// Gloo's own limit starts when an operation does, ours when it is called; this much later the wait
// ends whatever Gloo says. Until then Gloo's error, which knows more, may come.
inline constexpr std::chrono::milliseconds kGrace{500};

}  // namespace torch::comms::gloo
