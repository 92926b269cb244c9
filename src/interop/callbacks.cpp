#include "interop/callbacks.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/concurrency/executor.hpp"
#include "base/concurrency/per_process.hpp"
#include "base/os/log.hpp"

namespace torch::comms {
namespace {

std::atomic<void (*)()> callback_check{nullptr};

// The number of callbacks that close_callbacks() waits for.
struct PendingCallbacks {
  std::mutex mutex;  // guards the other members
  std::condition_variable none;
  size_t count = 0;
  bool closed = false;
};

PendingCallbacks& pending_callbacks() {
  static base::PerProcess<PendingCallbacks> ours;
  return ours.get();
}

// Blocks a callback after the interpreter has ended; the process exits soon.
[[noreturn]] void block_forever() {
  for (;;) ::pause();
}

void run_logged(const std::function<void()>& body) noexcept {
  try {
    body();
  } catch (const abi::__forced_unwind&) {
    block_forever();
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("a callback of a future failed: ") + e.what());
  }
}

}  // namespace

void run_callback(std::function<void()> body) {
  // Callbacks may change thread-local state, so no other functions run on their threads.
  static constinit base::Executor executor(std::chrono::seconds(1));
  const auto caller = std::this_thread::get_id();
  executor.run_or_inline([body = std::move(body), caller] {
    // If no thread can be started, the caller runs the body. The check must not block it, because
    // it may be the thread that ends the interpreter.
    const auto check = callback_check.load();
    if (check && std::this_thread::get_id() != caller) check();
    run_logged(body);
  });
}

void run_callback_before_exit(std::function<void()> body) {
  {
    const std::lock_guard lock(pending_callbacks().mutex);
    ++pending_callbacks().count;
  }
  // The callback counts as running until everything that the body holds is destroyed, which may be
  // the user's objects.
  const std::shared_ptr<void> end(nullptr, [](void*) {
    const std::lock_guard lock(pending_callbacks().mutex);
    if (--pending_callbacks().count == 0) pending_callbacks().none.notify_all();
  });
  run_callback([end, body = std::move(body)] {
    if (are_callbacks_closed()) block_forever();
    body();
  });
}

void close_callbacks(std::chrono::milliseconds limit) {
  std::unique_lock lock(pending_callbacks().mutex);
  pending_callbacks().none.wait_for(lock, limit, [] { return pending_callbacks().count == 0; });
  pending_callbacks().closed = true;
}

bool are_callbacks_closed() noexcept {
  const std::lock_guard lock(pending_callbacks().mutex);
  return pending_callbacks().closed;
}

void set_callback_check(void (*check)()) noexcept { callback_check.store(check); }

}  // namespace torch::comms
