#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <torchcomms/work.hpp>

#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/gloo_group.hpp"

namespace torch::comms::gloo {

// What is left to do on this rank when Gloo is done: divide, narrow, unpack. Owns what it uses.
using Finish = std::function<void()>;

// An asynchronous collective: one or several operations of Gloo, then `finish`. Gloo's threads
// complete it; it keeps itself and its tensors alive until then, and never the communicator.
class CollectiveWork final : public TorchWork {
 public:
  static c10::intrusive_ptr<CollectiveWork> start(const GlooCall& call,
                                                  std::vector<NativeWorkPtr> natives, Finish finish,
                                                  const GlooGroup& group);

  // Use begin_init().
  CollectiveWork(const GlooCall& call, std::vector<NativeWorkPtr> natives, Finish finish,
                 const GlooGroup& group);

  // Returns at most kErrorGrace after the limit, counted from the call, and 0.6 s later where the
  // others are asked where they are.
  void wait() override;
  std::chrono::milliseconds getTimeout() const override { return call_.timeout; }

 protected:
  void poll() noexcept override { check_peers(); }

 private:
  // Ends it if the others have, or call something else.
  void check_peers() noexcept;
  void native_done(const std::exception_ptr& error) noexcept;
  void end(std::exception_ptr error) noexcept;

  const GlooCall call_;
  const uint64_t fork_generation_;
  std::vector<NativeWorkPtr> natives_;
  Finish finish_;
  std::shared_ptr<ConnectionState> connections_;
  std::shared_ptr<common::PeerMonitor> peer_monitor_;
  InFlightCounter::Token token_;
  std::atomic<size_t> pending_natives_;  // natives not done yet
  std::mutex mutex_;                     // guards error_
  std::exception_ptr error_;             // the first of the natives'
};

// The same for a synchronous call: blocks until Gloo is done, on the calling thread. Throws
// CommError, kTimeout as above.
void wait_synchronously(const GlooCall& call, const NativeWorkPtr& native, const GlooGroup& group);

// Gloo's own limit starts when an operation does, ours when it is called; this much later the wait
// ends whatever Gloo says. Until then Gloo's error, which knows more, may come.
inline constexpr std::chrono::milliseconds kErrorGrace{500};

}  // namespace torch::comms::gloo
