#include "ctran/team/deferred_workspace.hpp"

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "ctran/kernels/protocol/flags.hpp"

namespace torch::comms::ctran {

DeferredWorkspace::DeferredWorkspace(const transport::nvl::RankContext& context,
                                     transport::nvl::SymmetricMemory& memory)
    : context_(context), memory_(memory), all_gather_(context.rank, context.size) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("cannot start the thread that allocates the rest of the "
                                "kernel workspace: ") +
                        e.what());
  }
}

DeferredWorkspace::~DeferredWorkspace() {
  stop();
  thread_.join();
}

void DeferredWorkspace::stop() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    all_gather_.stop();
  }
  changed_.notify_all();
}

void DeferredWorkspace::start(const std::vector<std::string>& addresses) {
  all_gather_.set_addresses(addresses);
  const std::scoped_lock lock(mutex_);
  has_started_ = true;
  changed_.notify_all();
}

std::string DeferredWorkspace::allocate_collectively(const std::function<void()>& interrupt_check) {
  constexpr std::chrono::milliseconds kCheckInterval{20};
  std::unique_lock lock(mutex_);
  const size_t number = requested_++;
  all_gather_.wake();
  const auto has_failed = [this] { return !allocations_.empty() && allocations_.back().failure; };
  while (allocations_.size() <= number && !has_failed()) {
    changed_.wait_for(lock, kCheckInterval);
    lock.unlock();
    interrupt_check();
    lock.lock();
  }
  if (number >= allocations_.size() || allocations_[number].failure)
    throw *allocations_.back().failure;
  return allocations_[number].unavailable_reason;
}

bool DeferredWorkspace::is_requested() {
  const std::scoped_lock lock(mutex_);
  return requested_ > allocations_.size();
}

void DeferredWorkspace::run() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_started_ || all_gather_.is_stopped(); });
  }
  for (bool goes_on = true; goes_on;) {
    auto outcome = allocate();
    goes_on = !outcome.failure && !outcome.unavailable_reason.empty();
    const std::scoped_lock lock(mutex_);
    allocations_.push_back(std::move(outcome));
    changed_.notify_all();
  }
  all_gather_.close();
}

DeferredWorkspace::DeferredAllocation DeferredWorkspace::allocate() {
  const auto failed = [this](const CommError& e) -> DeferredAllocation {
    all_gather_.announce_leave(e.context().peer);
    return {{}, e};
  };
  try {
    while (!all_gather_.is_stopped() && !all_gather_.is_round_started() && !is_requested())
      all_gather_.wait();
    if (all_gather_.is_stopped())
      return failed({Errc::kAborted, "this rank has closed or aborted the communicator"});
    const gpu::CaptureModeGuard mode(*context_.runtime);
    context_.runtime->set_device(context_.device);
    const auto exchange = [this](const std::string& text) { return all_gather_.all_gather(text); };
    return {memory_.allocate_rest(context_, kernels::kLateFill, exchange), std::nullopt};
  } catch (const CommError& e) {
    return failed(e);
  } catch (const std::exception& e) {
    return failed({Errc::kResourceExhausted, e.what()});
  }
}

}  // namespace torch::comms::ctran
