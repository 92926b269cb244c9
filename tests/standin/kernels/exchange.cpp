#include "standin/kernels/exchange.hpp"

#include <cstring>
#include <thread>

namespace torch::comms::standin {

Exchange::Exchange(const kernels::Team& team, const kernels::Call& call)
    : team_(team), call_(call), launch_(++workspace(team.rank).launches) {}

bool Exchange::goes_on() noexcept {
  if (workspace(team_.rank).stopped.load() != 0) return false;
  if (std::atomic_ref(team_.control->abort).load() == 0) return true;
  stop(kernels::Stop::kAborted, -1);
  return false;
}

bool Exchange::await(const std::function<bool()>& condition, int peer) {
  const std::chrono::nanoseconds limit(call_.limit_ns);
  while (!condition()) {
    if (std::atomic_ref(team_.control->abort).load() != 0) {
      stop(kernels::Stop::kAborted, peer);
      return false;
    }
    if (limit.count() > 0 && std::chrono::steady_clock::now() - begin_ > limit) {
      stop(kernels::Stop::kLimit, peer);
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

void Exchange::stop(kernels::Stop why, int waited_for) {
  if (workspace(team_.rank).stopped.exchange(1) != 0) return;
  auto& control = *team_.control;
  control.waited_for = waited_for;
  control.collective = static_cast<uint32_t>(call_.collective);
  control.launch = launch_;
  std::atomic_ref(control.stop).store(static_cast<uint32_t>(why), std::memory_order_release);
}

void Exchange::send(int peer, const void* data, size_t size_bytes) {
  if (!goes_on()) return;
  auto& inbox = this->inbox(peer, team_.rank);
  const auto before = inbox.sent.load();
  if (!await([&] { return inbox.taken.load() == before; }, peer)) return;
  if (size_bytes > 0) std::memcpy(inbox.data, data, size_bytes);
  inbox.sent.store(before + 1);
}

const std::byte* Exchange::receive(int peer) {
  if (!goes_on()) return nullptr;
  auto& inbox = this->inbox(team_.rank, peer);
  const auto wanted = inbox.taken.load() + 1;
  return await([&] { return inbox.sent.load() >= wanted; }, peer) ? inbox.data : nullptr;
}

void Exchange::taken(int peer) { ++inbox(team_.rank, peer).taken; }

void Exchange::hang() {
  await([] { return false; }, -1);
}

}  // namespace torch::comms::standin
