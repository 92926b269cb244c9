#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <torchcomms/types.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

// Whether the program has met a communicator's failure: some call, poll_once() or finalize() raised
// it, or a future of a work has it, or who asked a work of a process group was told. An
// asynchronous operation that failed and that nobody waits for leaves wrong data where nobody
// looks; after a grace the process ends rather than go on with that.
//
// Threads: any.
class TC_API UnobservedFailureGuard : public std::enable_shared_from_this<UnobservedFailureGuard> {
 public:
  // `last_words` runs on a thread of its own right before the end, which waits 30 s for it at most.
  // `end` is what ends the process, std::abort but in tests. `grace` may be kNever.
  static constexpr auto kNever = std::chrono::milliseconds::max();
  UnobservedFailureGuard(std::string comm, std::chrono::milliseconds grace,
                         std::function<void()> last_words, std::function<void()> end);

  // The failure of `work` will be met by whoever waits for it, or is told by meetFailure(); until
  // then the process is on its way to its end. The first one counts. Called by who sees the work
  // end, from inside of that.
  void arm(TorchWork& work) noexcept;
  // The same as soon as `work` fails, which has begun. kInvalidArgument is no such failure: the
  // communicator goes on, as after a wait whose window was closed.
  void arm_on_failure(TorchWork& work);
  // The program knows, or does now. There is no way back. The failure that nobody had met before.
  std::exception_ptr mark_observed() noexcept;

 private:
  void wait_until_observed(WorkStatus status);
  void terminate(WorkStatus status);

  const std::string comm_;
  const std::chrono::milliseconds grace_;
  const std::function<void()> before_terminate_, terminate_;
  std::mutex mutex_;  // guards the flags; partner of changed_
  std::condition_variable changed_;
  bool is_observed_ = false, is_armed_ = false;
  std::exception_ptr pending_;
};

// TORCHCOMM_ABORT_GRACE_SECONDS. Throws CommError(kInvalidArgument).
std::chrono::milliseconds abort_grace();

}  // namespace torch::comms
