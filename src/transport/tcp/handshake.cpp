#include "transport/tcp/handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <string>

namespace torch::comms::transport::tcp {

const char* why_not(const Hello& hello, const Door& door) noexcept {
  if (hello.magic != Hello::kMagic) return "not ours";
  if (hello.version != Hello::kVersion) return "another version";
  if (!constant_time_equal(hello.job, door.job)) return "another job";
  if (hello.instance != door.instance || hello.to != door.rank) return "meant for another rank";
  // The smaller rank connects, so that both never do.
  if (hello.from < 0 || hello.from >= door.rank) return "from a rank that does not connect here";
  if (hello.lanes < 1 || hello.lanes > kMaxLanes || hello.lane >= hello.lanes)
    return "an impossible number of sockets";
  return nullptr;
}

std::string why_not(const Welcome& welcome) {
  if (welcome.magic != Hello::kMagic) return "something else listens there";
  if (welcome.version != Hello::kVersion)
    return "version " + std::to_string(welcome.version) + " of the tcp link is there, version " +
           std::to_string(Hello::kVersion) + " here";
  return {};
}

Guest::State Guest::read() noexcept {
  auto* at = reinterpret_cast<std::byte*>(&hello_);
  const auto got = ::recv(socket_.get(), at + have_, sizeof hello_ - have_, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? State::kNotYet : State::kGone;
  if (got == 0) return State::kGone;
  have_ += static_cast<size_t>(got);
  // Whoever speaks another language is shown the door at once.
  if (have_ >= sizeof hello_.magic && hello_.magic != Hello::kMagic) return State::kGone;
  return have_ == sizeof hello_ ? State::kWhole : State::kNotYet;
}

}  // namespace torch::comms::transport::tcp
