#include "interop/callbacks.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "base/concurrency/kept_threads.hpp"
#include "base/concurrency/per_process.hpp"
#include "base/os/log.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kKeepIdle{1};

std::atomic<void (*)()> callback_check{nullptr};

// Callbacks that close_callbacks() waits for.
struct PendingCallbacks {
  std::mutex mutex;  // guards the rest
  std::condition_variable none;
  size_t count = 0;
  bool closed = false;
};

PendingCallbacks& pending_callbacks() {
  static base::PerProcess<PendingCallbacks> ours;
  return ours.get();
}

// The program's language has ended, and its process soon does.
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
  static auto& threads = *new base::KeptThreads(kKeepIdle);
  // What it holds goes on its thread, not here, where somebody may wait who has Python's lock.
  const auto kept = std::make_shared<std::function<void()>>(std::move(body));
  const auto run = [kept] {
    run_logged(*kept);
    *kept = nullptr;
  };
  try {
    threads.run([run] {
      if (const auto check = callback_check.load()) check();
      run();
    });
  } catch (const std::system_error&) {
    run();  // no thread to be had: then here
  }
}

void run_callback_before_exit(std::function<void()> body) {
  {
    const std::lock_guard lock(pending_callbacks().mutex);
    ++pending_callbacks().count;
  }
  // It ends when all that the body holds is gone, which may be the program's.
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
