#include "interop/callbacks.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "base/kept_threads.hpp"
#include "base/log.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kKeepIdle{1};

std::atomic<void (*)()> callback_check{nullptr};

void run_logged(const std::function<void()>& body) noexcept {
  try {
    body();
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

void set_callback_check(void (*check)()) noexcept { callback_check.store(check); }

}  // namespace torch::comms
