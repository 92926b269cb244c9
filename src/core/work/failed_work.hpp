#pragma once

#include <exception>

#include <torchcomms/base/error.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

// Of a call that the world has refused: failed when it is made, and each poll_once() raises the
// error.
class FailedWork final : public TorchWork {
 public:
  explicit FailedWork(const CommError& error) {
    const auto status = error.code() == Errc::kTimeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
    setStatus(status, std::make_exception_ptr(error));
  }
  void wait() override {
    runWaitPreHooks();
    runWaitPostHooks();
    rethrowIfFailed();
  }
  void waitBlocking() override { wait(); }
};

}  // namespace torch::comms
