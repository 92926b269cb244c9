#include "ctran/device/growth.hpp"

#include <chrono>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "ctran/kernels/flags.hpp"

namespace torch::comms::ctran {

Growth::Growth(const transport::nvl::Seat& seat, transport::nvl::SymmetricMemory& memory)
    : seat_(seat), memory_(memory), circle_(seat.rank, seat.size) {}

Growth::~Growth() {
  circle_.stop();
  if (thread_.joinable()) thread_.join();
}

void Growth::begin(const std::vector<std::string>& addresses) {
  circle_.know(addresses);
  thread_ = std::thread([this] { run(); });
}

std::string Growth::bring(const std::function<void()>& look) {
  constexpr std::chrono::milliseconds kLook{20};
  std::unique_lock lock(mutex_);
  const size_t number = wanted_++;
  circle_.ring();
  const auto has_failed = [this] { return !outcomes_.empty() && outcomes_.back().failure; };
  while (outcomes_.size() <= number && !has_failed()) {
    changed_.wait_for(lock, kLook);
    lock.unlock();
    look();
    lock.lock();
  }
  if (number >= outcomes_.size() || outcomes_[number].failure) throw *outcomes_.back().failure;
  return outcomes_[number].why_not;
}

void Growth::ring() { changed_.notify_all(); }

bool Growth::is_wanted() {
  const std::scoped_lock lock(mutex_);
  return wanted_ > outcomes_.size();
}

void Growth::run() {
  for (bool goes_on = true; goes_on;) {
    auto outcome = attempt();
    goes_on = !outcome.failure && !outcome.why_not.empty();
    const std::scoped_lock lock(mutex_);
    outcomes_.push_back(std::move(outcome));
    changed_.notify_all();
  }
}

Growth::Outcome Growth::attempt() {
  try {
    while (!circle_.is_stopped() && !circle_.is_begun() && !is_wanted()) circle_.await();
    const gpu::CaptureModeGuard mode(*seat_.runtime);
    seat_.runtime->set_device(seat_.device);
    const auto tell = [this](const std::string& words) { return circle_.tell(words); };
    return {memory_.complete(seat_, kernels::kLateFill, tell), std::nullopt};
  } catch (const CommError& e) {
    circle_.leave(e.context().peer);
    return {{}, e};
  }
}

}  // namespace torch::comms::ctran
