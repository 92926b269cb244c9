#include "transport/nvl/meeting.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/host.hpp"
#include "base/system_error.hpp"
#include "transport/nvl/card.hpp"
#include "transport/unix_socket.hpp"

namespace torch::comms::transport::nvl {
namespace {

using Clock = std::chrono::steady_clock;

// For what has been sent already to be there.
constexpr std::chrono::seconds kArrivalLimit{10};
constexpr const char* kUntaken = "the memory of a rank cannot be taken";

// The one packet from each rank to each other, with the descriptor of its memory, or of nothing.
struct Offer {
  int32_t from = -1;
  uint32_t spare = 0;
  base::Secret secret = {};  // of the rank that it is for
  gpu::MemoryExportInfo note;
};

[[noreturn]] void refuse(const std::string& why) { throw CommError(Errc::kSystem, why); }

class Making {
 public:
  Making(const Meeting& meeting, const Seat& seat, const Wanted& wanted, const Exchange& exchange)
      : meeting_(meeting), seat_(seat), wanted_(wanted), exchange_(exchange) {}

  std::string run() {
    if (auto why = introduce(); !why.empty()) return why;
    if (auto why = agree([this] { offer(); }); !why.empty()) return why;
    return agree([this] { collect(); });
  }

 private:
  std::string introduce() {
    Card card;
    card.size_bytes = wanted_.size_bytes;
    card.first_bytes = wanted_.first_bytes == 0 ? wanted_.size_bytes : wanted_.first_bytes;
    card.purpose = Words<64>(wanted_.purpose);
    card.host = Words<128>(base::loopback_identity());
    auto unwilling = wanted_.unwilling;
    if (unwilling.empty())
      unwilling = reason_of([&] {
        if (auto why = seat_.driver->unmappable_reason(seat_.device); !why.empty()) refuse(why);
        card.device = seat_.driver->uuid_of(seat_.device);
        secret_ = card.secret = base::random_secret();
        const auto name = "torchcomms-nvl-" + std::to_string(base::random_number());
        card.socket = Words<48>(name);
        listener_ = listen_at(name);
      });
    card.unwilling = Words<200>(unwilling);
    for (const auto& words : exchange_(to_words(card))) cards_.push_back(card_of(words));
    return objection(cards_);
  }

  // The first rank's reason against it, once all have done `body`.
  template <class Body>
  std::string agree(const Body& body) {
    return first_reason(exchange_(reason_of(body)));
  }

  // Sends this rank's memory to all others. Waits for nobody: what is sent lies in their queues.
  void offer() {
    for (int peer = 0; peer < seat_.size; ++peer) require_reach(peer);
    const auto least = std::ranges::min_element(cards_, {}, &Card::first_bytes);
    const auto own = meeting_.bring(least->first_bytes);
    const base::FileDescriptor nothing(own.descriptor ? -1 : ::open("/dev/null", O_CLOEXEC));
    const auto& descriptor = own.descriptor ? own.descriptor : nothing;
    for (int peer = 0; peer < seat_.size; ++peer) {
      if (peer == seat_.rank) continue;
      const auto& card = card_of_rank(peer);
      auto socket = connect_to(card.socket.text());
      const Offer offer{seat_.rank, 0, card.secret, own.info};
      if (!socket ||
          !send_packet(socket.get(), std::as_bytes(std::span(&offer, 1)), descriptor.get()))
        refuse("rank " + std::to_string(peer) +
               " is not reached by Unix socket: " + std::strerror(errno));
      sent_.push_back(std::move(socket));
    }
  }

  void require_reach(int peer) const {
    const auto& driver = *seat_.driver;
    const auto& uuid = card_of_rank(peer).device;
    const auto device = driver.device_of(uuid);
    const auto own = "device " + std::to_string(seat_.device);
    const auto its = device ? "device " + std::to_string(*device) + ", which rank " +
                                  std::to_string(peer) + " has"
                            : "the device of rank " + std::to_string(peer);
    // Of one that this process does not see mapping its memory tells.
    if (device && !driver.can_access_peer(seat_.device, *device))
      refuse(own + " does not reach the memory of " + its);
    // Over PCIe, where memory may be mapped as well, a line of 128 bytes may come in parts.
    const std::optional<bool> joined = device ? driver.has_native_atomics(seat_.device, *device)
                                              : driver.is_joined(seat_.device, uuid);
    if (!joined)
      refuse("it cannot be told whether NVLink joins " + own + " to " + its +
             ", which this process does not see: libnvidia-ml.so.1 does not know; let "
             "CUDA_VISIBLE_DEVICES of all ranks have all their devices");
    if (!*joined) refuse(own + " is not joined by NVLink to " + its);
  }

  // Maps what the others have sent.
  void collect() {
    has_come_.resize(static_cast<size_t>(seat_.size));
    const auto deadline = Clock::now() + kArrivalLimit;
    for (int missing = seat_.size - 1; missing > 0;) missing -= take_one(deadline) ? 1 : 0;
  }

  // False for a stranger. Without a descriptor for what has come nothing more is waited for.
  bool take_one(Clock::time_point deadline) {
    await(listener_.get(), deadline);
    const base::FileDescriptor guest(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest && base::is_resource_exhausted(errno)) throw base::system_error(kUntaken);
    int process = 0;
    uint32_t user = 0;
    if (!guest || !read_peer_credentials(guest.get(), process, user) ||
        (user != ::geteuid() && user != 0))
      return false;
    await(guest.get(), deadline);
    Offer offer;
    base::FileDescriptor memory;
    const auto arrival =
        read_packet(guest.get(), std::as_writable_bytes(std::span(&offer, 1)), memory);
    if (arrival == PacketStatus::kDescriptorsExhausted) throw base::system_error(EMFILE, kUntaken);
    const bool ours = arrival == PacketStatus::kPacket &&
                      base::constant_time_equal(offer.secret, secret_) && offer.from >= 0 &&
                      offer.from < seat_.size && offer.from != seat_.rank &&
                      !has_come_[static_cast<size_t>(offer.from)];
    if (!ours) return false;
    has_come_[static_cast<size_t>(offer.from)] = true;
    meeting_.take(offer.from, {std::move(memory), offer.note});
    return true;
  }

  static void await(int descriptor, Clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd wanted{descriptor, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count())) == 0)
      refuse("the memory of a rank did not arrive");
  }

  const Card& card_of_rank(int rank) const { return cards_[static_cast<size_t>(rank)]; }

  const Meeting& meeting_;
  const Seat& seat_;
  const Wanted& wanted_;
  const Exchange& exchange_;
  base::Secret secret_ = {};
  base::FileDescriptor listener_;
  std::vector<Card> cards_;
  std::vector<base::FileDescriptor> sent_;  // open until all have read what lies in them
  std::vector<bool> has_come_;
};

}  // namespace

std::string Meeting::run(const Seat& seat, const Wanted& wanted, const Exchange& exchange) const {
  TC_CHECK(seat.driver || !wanted.unwilling.empty());
  return Making(*this, seat, wanted, exchange).run();
}

}  // namespace torch::comms::transport::nvl
