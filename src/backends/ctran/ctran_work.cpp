#include "backends/ctran/ctran_work.hpp"

#include <exception>
#include <string>
#include <utility>

#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::ctran {

CtranWork::CtranWork(const CallInfo& issue, const Session& session,
                     std::vector<c10::Storage> memory)
    : call_(issue),
      context_{.op = std::string(issue.op),
               .comm = session.group->name(),
               .rank = session.group->rank()},
      fork_generation_(base::fork_generation()),
      memory_(std::move(memory)),
      token_(session.in_flight) {}

void CtranWork::on_complete(const CommError* error) noexcept {
  const auto self = std::exchange(self_, nullptr);
  auto status = WorkStatus::COMPLETED;
  std::exception_ptr kept;
  if (error != nullptr) {
    status = error->code() == Errc::kTimeout ? WorkStatus::TIMEDOUT : WorkStatus::ERROR;
    kept = std::make_exception_ptr(*error);
  }
  memory_.clear();
  token_.release();
  try {
    setStatus(status, kept);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              std::string("a hook of a completed work raised an error: ") + e.what());
  }
}

void CtranWork::wait() {
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked,
                    "this work was started before fork(); only the parent process can wait for it",
                    context_);
  runWaitPreHooks();
  constexpr std::chrono::milliseconds kTick{50};
  try {
    while (!isTerminal(status()) && !native_.wait_for(kTick)) check_interrupt();
    // The engine's work has completed, but another thread may not have called on_complete() yet.
    while (!waitForTerminal(kTick)) check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
  runWaitPostHooks();
  rethrowIfFailed();
}

void CtranWork::poll() noexcept {
  if (fork_generation_ == base::fork_generation()) native_.poll();
}

}  // namespace torch::comms::ctran
