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

// The local steps of a collective after Gloo is done: divide, convert, unpack. Owns the tensors
// that it uses.
using Finish = std::function<void()>;

// An asynchronous collective: one or several Gloo operations, then `finish`. Gloo's threads
// complete the work. The work keeps itself and its tensors alive until then, but never the
// communicator.
class CollectiveWork final : public TorchWork {
 public:
  static c10::intrusive_ptr<CollectiveWork> start(const GlooCall& call,
                                                  std::vector<NativeWorkPtr> natives, Finish finish,
                                                  const GlooGroup& group);

  // Use start().
  CollectiveWork(const GlooCall& call, std::vector<NativeWorkPtr> natives, Finish finish,
                 const GlooGroup& group);

  // Blocks: until at most kErrorGrace after the deadline of the call, plus 0.6 s if the progress of
  // the peer ranks is queried.
  void wait() override;
  std::chrono::milliseconds getTimeout() const override { return call_.timeout; }

 protected:
  void poll() noexcept override { check_peers(); }

 private:
  // Completes the work with an error if a peer rank has failed, has closed the communicator or
  // calls a different collective.
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
  std::atomic<size_t> pending_natives_;  // natives that are not done yet
  std::mutex mutex_;                     // guards error_
  std::exception_ptr error_;             // the first error of the natives
};

// Waits for a collective of a synchronous call.
// Blocks: the calling thread until Gloo is done, as long as CollectiveWork::wait() at most.
// Throws: CommError; kTimeout after the deadline.
void wait_synchronously(const GlooCall& call, const NativeWorkPtr& native, const GlooGroup& group);

// The time between the deadline of a call and the end of its wait. Gloo's own timeout starts when
// the operation starts, which is later than the call. Within this time Gloo's error, which has more
// details, may still arrive.
inline constexpr std::chrono::milliseconds kErrorGrace{500};

}  // namespace torch::comms::gloo
