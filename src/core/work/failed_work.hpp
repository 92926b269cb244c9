#pragma once

#include <exception>

#include <torchcomms/base/error.hpp>
#include <torchcomms/work.hpp>

namespace torch::comms {

// The work of a call that failed for an external reason. It has failed when it is created, and each
// wait() throws the error.
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
