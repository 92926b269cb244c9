#include "ctran/device/growth.hpp"

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "ctran/kernels/flags.hpp"

namespace torch::comms::ctran {

Growth::Growth(const transport::nvl::RankContext& seat, transport::nvl::SymmetricMemory& memory)
    : seat_(seat), memory_(memory), circle_(seat.rank, seat.size) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("a thread for a workspace that grows: ") + e.what());
  }
}

Growth::~Growth() {
  stop();
  thread_.join();
}

void Growth::stop() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    circle_.stop();
  }
  changed_.notify_all();
}

void Growth::begin(const std::vector<std::string>& addresses) {
  circle_.set_addresses(addresses);
  const std::scoped_lock lock(mutex_);
  has_begun_ = true;
  changed_.notify_all();
}

std::string Growth::bring(const std::function<void()>& look) {
  constexpr std::chrono::milliseconds kLook{20};
  std::unique_lock lock(mutex_);
  const size_t number = wanted_++;
  circle_.wake();
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

bool Growth::is_wanted() {
  const std::scoped_lock lock(mutex_);
  return wanted_ > outcomes_.size();
}

void Growth::run() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_begun_ || circle_.is_stopped(); });
  }
  for (bool goes_on = true; goes_on;) {
    auto outcome = attempt();
    goes_on = !outcome.failure && !outcome.why_not.empty();
    const std::scoped_lock lock(mutex_);
    outcomes_.push_back(std::move(outcome));
    changed_.notify_all();
  }
  circle_.close();
}

Growth::Outcome Growth::attempt() {
  const auto failed = [this](const CommError& e) -> Outcome {
    circle_.announce_leave(e.context().peer);
    return {{}, e};
  };
  try {
    while (!circle_.is_stopped() && !circle_.is_round_started() && !is_wanted()) circle_.wait();
    if (circle_.is_stopped()) return failed({Errc::kAborted, "the communicator has ended here"});
    const gpu::CaptureModeGuard mode(*seat_.runtime);
    seat_.runtime->set_device(seat_.device);
    const auto tell = [this](const std::string& words) { return circle_.all_gather(words); };
    return {memory_.allocate_rest(seat_, kernels::kLateFill, tell), std::nullopt};
  } catch (const CommError& e) {
    return failed(e);
  } catch (const std::exception& e) {
    return failed({Errc::kResourceExhausted, e.what()});
  }
}

}  // namespace torch::comms::ctran
