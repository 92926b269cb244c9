#include "standin/kernels/launch.hpp"

#include <cstring>
#include <thread>

namespace torch::comms::standin {

Launch::Launch(const kernels::TeamDescriptor& team, kernels::Collective collective, uint64_t print,
               uint64_t limit_ns)
    : team_(team), collective_(collective), limit_ns_(limit_ns) {
  auto& own = workspace(team.rank);
  const bool exchanges = collective == kernels::Collective::kExchange ||
                         collective == kernels::Collective::kAllToAllVDynamic;
  if (exchanges) launch_ = ++own.exchanges;
  const bool is_collective = collective <= kernels::Collective::kBarrier ||
                             collective == kernels::Collective::kQuantizedReduceScatter;
  if (!is_collective) return;
  launch_ = ++own.launches;
  tell(print);
}

void Launch::tell(uint64_t print) {
  auto& own = workspace(team_.rank).header;
  before_ = own.arrival[team_.rank];
  begun_ = kernels::arrival_word(
      launch_, kernels::chain_fingerprint(kernels::fingerprint_in(before_), print));
  own.arrival[team_.rank] = begun_;
  if (std::atomic_ref(own.stop).load() != 0) return;
  for (int peer = 0; peer < team_.size; ++peer)
    if (peer != team_.rank)
      std::atomic_ref(workspace(peer).header.arrival[team_.rank]).store(begun_);
}

int Launch::disagreeing() const noexcept {
  auto& begun = workspace(team_.rank).header.arrival;
  for (int peer = 0; peer < team_.size && begun_ != 0; ++peer) {
    if (peer == team_.rank) continue;
    const uint64_t word = std::atomic_ref(begun[peer]).load();
    if (kernels::has_call_mismatch(word, begun_) || kernels::has_call_mismatch(word, before_))
      return peer;
  }
  return -1;
}

bool Launch::goes_on(int waited_for) noexcept {
  using enum kernels::StopReason;
  auto& own = workspace(team_.rank);
  if (std::atomic_ref(own.header.stop).load() != 0) return false;
  const uint64_t report = std::atomic_ref(own.header.reported).load();
  if (const int peer = disagreeing(); peer >= 0)
    other_call(peer);
  else if (report != 0)
    stop(kernels::reason_of(report), kernels::reporter_of(report));
  else if (std::atomic_ref(team_.control->abort).load() != 0)
    stop(kAborted, waited_for);
  else
    return true;
  return false;
}

bool Launch::waits(int waited_for) noexcept {
  if (!goes_on(waited_for)) return false;
  const std::chrono::nanoseconds limit(limit_ns_ == kernels::kControlTimeout
                                           ? std::atomic_ref(team_.control->timeout_ns).load()
                                           : limit_ns_);
  if (limit.count() > 0 && std::chrono::steady_clock::now() - begin_ > limit) {
    stop(kernels::StopReason::kTimeout, waited_for);
    return false;
  }
  // What it had written has been looked for since that was known.
  if (waited_for >= 0 && (gone_ >> waited_for & 1) != 0) {
    stop(kernels::StopReason::kPeerLeft, waited_for);
    return false;
  }
  gone_ = std::atomic_ref(team_.control->quiesced).load();
  std::this_thread::yield();
  return true;
}

bool Launch::await(const std::function<bool()>& condition, int peer) {
  while (!condition())
    if (!waits(peer)) return false;
  return true;
}

void Launch::stop(kernels::StopReason why, int waited_for) {
  uint64_t none = 0;
  std::atomic_ref stopped(workspace(team_.rank).header.stop);
  if (!stopped.compare_exchange_strong(none, static_cast<uint64_t>(why))) return;
  auto& control = *team_.control;
  control.waited_for = waited_for;
  control.collective = static_cast<uint32_t>(collective_);
  control.launch = launch_;
  std::atomic_ref(control.stop).store(static_cast<uint32_t>(why), std::memory_order_release);
}

void Launch::report(kernels::StopReason why, int peer) const {
  std::atomic_ref(workspace(peer).header.reported).store(kernels::report_of(why, team_.rank));
}

void Launch::send(int peer, const void* data, size_t size_bytes) {
  if (!goes_on()) return;
  auto& inbox = this->inbox(peer, team_.rank);
  const auto before = inbox.sent.load();
  if (!await([&] { return inbox.taken.load() == before; }, peer)) return;
  if (size_bytes > 0) std::memcpy(inbox.data, data, size_bytes);
  inbox.begun = begun_;
  inbox.sent.store(before + 1);
}

const std::byte* Launch::receive(int peer) {
  if (!goes_on()) return nullptr;
  auto& inbox = this->inbox(team_.rank, peer);
  const auto wanted = inbox.taken.load() + 1;
  if (!await([&] { return inbox.sent.load() >= wanted; }, peer)) return nullptr;
  if (inbox.begun == begun_) return inbox.data;
  other_call(peer);
  return nullptr;
}

void Launch::taken(int peer) { ++inbox(team_.rank, peer).taken; }

void Launch::hang() {
  await([] { return false; }, -1);
}

void Launch::mismatch(int peer, kernels::StopReason why) {
  stop(why, peer);
  report(why, peer);
}

void Launch::stop_all(kernels::StopReason why, int waited_for) {
  stop(why, waited_for);
  for (int peer = 0; peer < team_.size; ++peer)
    if (peer != team_.rank) report(why, peer);
}

}  // namespace torch::comms::standin
