#include "transport/nvl/unix_allgather.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/fork_descriptors.hpp"
#include "base/os/system_error.hpp"
#include "transport/connect/unix_socket.hpp"
#include "transport/nvl/peer_descriptor.hpp"

namespace torch::comms::transport::nvl {

struct UnixAllGather::AllGatherAddress {
  uint32_t magic = kMagic;
  uint32_t rank = 0;
  base::Secret secret = {};
  FixedString<64> name;

  static constexpr uint32_t kMagic = 0x43564e54;  // "TNVC"
};

// A rank's text of one round for one peer; or its last packet, because `failed_rank` has ended.
struct UnixAllGather::AllGatherPacket {
  int32_t from = -1;
  int32_t failed_rank = -1;
  uint32_t length = 0;
  uint64_t round = 0;
  base::Secret secret = {};  // of the receiving rank
  std::array<char, kMaxTextBytes> text = {};
};

namespace {

base::FileDescriptor make_wakeup_event() {
  base::FileDescriptor result(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!result) throw base::system_error("cannot create an eventfd");
  return result;
}

[[noreturn]] void throw_peer_failed(int rank, const std::string& why) {
  throw CommError(Errc::kPeerFailed, "rank " + std::to_string(rank) + " " + why, {.peer = rank});
}

}  // namespace

UnixAllGather::UnixAllGather(int rank, int size)
    : rank_(rank),
      size_(size),
      name_("torchcomms-circle-" + std::to_string(base::random_number())),
      secret_(base::random_secret()),
      listener_(listen_at(name_)),
      wakeup_event_(make_wakeup_event()),
      peers_(static_cast<size_t>(size)) {
  base::set_close_on_fork(listener_.get());
}

std::string UnixAllGather::address() const {
  const AllGatherAddress own{
      .rank = static_cast<uint32_t>(rank_), .secret = secret_, .name = FixedString<64>(name_)};
  return {reinterpret_cast<const char*>(&own), sizeof own};
}

void UnixAllGather::set_addresses(const std::vector<std::string>& addresses) {
  for (int rank = 0; rank < size_; ++rank) {
    const auto& serialized = addresses.at(static_cast<size_t>(rank));
    AllGatherAddress received;
    if (serialized.size() == sizeof received)
      std::memcpy(&received, serialized.data(), sizeof received);
    if (serialized.size() != sizeof received || received.magic != AllGatherAddress::kMagic ||
        received.rank != static_cast<uint32_t>(rank))
      throw CommError(Errc::kSystem, "rank " + std::to_string(rank) +
                                         " sent an invalid Unix socket address (" +
                                         std::to_string(serialized.size()) +
                                         " bytes); all ranks must run the same torchcomms version");
    peer(rank).name = received.name.text();
    peer(rank).secret = received.secret;
  }
}

void UnixAllGather::close() noexcept {
  accepted_.clear();
  for (auto& each : peers_) each.socket = {};
  listener_ = {};
}

void UnixAllGather::wake() noexcept {
  const uint64_t one = 1;
  (void)!::write(wakeup_event_.get(), &one, sizeof one);
}

void UnixAllGather::stop() noexcept {
  is_stopped_.store(true, std::memory_order_release);
  wake();
}

bool UnixAllGather::is_round_started() const noexcept {
  return std::ranges::any_of(peers_, [](const AllGatherPeer& peer) { return !peer.texts.empty(); });
}

std::vector<std::string> UnixAllGather::all_gather(const std::string& text) {
  const auto check_stopped = [this] {
    if (is_stopped())
      throw CommError(Errc::kAborted, "this rank has aborted or closed the communicator");
  };
  check_stopped();
  for_peers([&](int rank) { send(rank, {.round = round_}, text); });
  for (; is_round_incomplete(); check_stopped()) wait();
  ++round_;
  std::vector<std::string> all(static_cast<size_t>(size_), text);
  for_peers([&](int rank) {
    auto& texts = peer(rank).texts;
    all[static_cast<size_t>(rank)] = std::move(texts.front());
    texts.pop_front();
  });
  return all;
}

// Throws for a rank that has left without its text. If several have left, the error names the rank
// that a peer announced as ended.
// Returns: whether texts of this round are missing.
bool UnixAllGather::is_round_incomplete() const {
  int left_rank = -1;
  bool is_incomplete = false;
  for_peers([&](int rank) {
    if (!peer(rank).texts.empty()) return;
    is_incomplete = true;
    if (peer(rank).has_left && (left_rank < 0 || rank == failed_rank_)) left_rank = rank;
  });
  if (left_rank >= 0) throw_peer_failed(left_rank, "has ended, or closed the communicator");
  return is_incomplete;
}

void UnixAllGather::announce_leave(int failed_rank) noexcept {
  for_peers([&](int rank) {
    try {
      if (!peer(rank).has_left)
        send(rank, {.failed_rank = failed_rank < 0 ? rank_ : failed_rank}, "");
    } catch (const CommError&) {  // that peer has ended as well
    }
  });
}

void UnixAllGather::send(int rank, AllGatherPacket packet, const std::string& text) {
  auto& to = peer(rank);
  if (!to.socket) {
    to.socket = connect_to(to.name);
    if (!to.socket && base::is_resource_exhausted(errno))
      throw base::system_error("cannot connect to the ranks of this host by Unix socket");
    if (to.socket) base::set_close_on_fork(to.socket.get());
  }
  packet.from = rank_;
  packet.secret = to.secret;
  packet.length = static_cast<uint32_t>(text.copy(packet.text.data(), packet.text.size()));
  if (!to.socket || ::send(to.socket.get(), &packet, sizeof packet, MSG_NOSIGNAL) !=
                        static_cast<ssize_t>(sizeof packet))
    throw_peer_failed(rank,
                      std::string("cannot be reached by Unix socket: ") + std::strerror(errno));
}

void UnixAllGather::wait() {
  std::vector<pollfd> polled{{wakeup_event_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const auto& peer : peers_)  // only the peer's end is an event; -1: none
    polled.push_back({peer.has_left ? -1 : peer.socket.get(), 0, 0});
  for (const auto& accepted : accepted_) polled.push_back({accepted.socket.get(), POLLIN, 0});
  if (::poll(polled.data(), polled.size(), -1) < 0) {
    if (errno != EINTR)
      throw base::system_error("cannot receive from the ranks of this host by Unix socket");
    return;
  }
  if (polled[0].revents != 0) {
    uint64_t wakeups = 0;
    (void)!::read(wakeup_event_.get(), &wakeups, sizeof wakeups);
  }
  // Reads until nothing is left: a peer announces an ended rank after its last text.
  while (receive_all()) {
  }
  for (size_t rank = 0; rank < peers_.size(); ++rank)
    if (polled[2 + rank].revents != 0) peers_[rank].has_left = true;
}

// Accepts connections and reads packets.
// Returns: whether there were any.
bool UnixAllGather::receive_all() {
  bool has_received = false;
  while (accept_one()) has_received = true;
  std::erase_if(accepted_, [&](AcceptedSocket& accepted) {
    const auto outcome = read(accepted);
    has_received |= outcome != PacketOutcome::kNothing;
    return outcome == PacketOutcome::kEnd;
  });
  return has_received;
}

// Accepts one connection.
// Returns: false if no connection waits.
bool UnixAllGather::accept_one() {
  pollfd polled{listener_.get(), POLLIN, 0};  // accept4() allocates a descriptor first
  if (::poll(&polled, 1, 0) <= 0) return false;
  base::FileDescriptor socket(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (base::is_resource_exhausted(errno))
      throw base::system_error("cannot receive from the ranks of this host by Unix socket");
    return errno == ECONNABORTED || errno == EINTR;
  }
  int process = 0;
  uint32_t user = 0;
  if (!read_peer_credentials(socket.get(), process, user) || (user != ::geteuid() && user != 0))
    return true;
  base::set_close_on_fork(socket.get());
  accepted_.push_back({std::move(socket)});
  return true;
}

// Reads one packet.
// Returns: kEnd if the connection has ended or was not from a peer, or if the peer has left.
UnixAllGather::PacketOutcome UnixAllGather::read(AcceptedSocket& accepted) {
  AllGatherPacket packet;
  const auto size = ::recv(accepted.socket.get(), &packet, sizeof packet, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return PacketOutcome::kNothing;
  const auto is_rank = [this](int rank) { return rank >= 0 && rank < size_; };
  const bool is_ours = size == static_cast<ssize_t>(sizeof packet) && is_rank(packet.from) &&
                       packet.from != rank_ && packet.length <= kMaxTextBytes &&
                       base::constant_time_equal(packet.secret, secret_) &&
                       (accepted.rank < 0 || accepted.rank == packet.from);
  if (is_ours) accepted.rank = packet.from;
  if (accepted.rank < 0) return PacketOutcome::kEnd;
  auto& from = peer(accepted.rank);
  if (is_ours && !is_rank(packet.failed_rank) && packet.round == from.rounds) {
    ++from.rounds;
    from.texts.emplace_back(packet.text.data(), packet.length);
    return PacketOutcome::kText;
  }
  from.has_left = true;
  if (is_ours && is_rank(packet.failed_rank) && packet.failed_rank != rank_) {
    failed_rank_ = packet.failed_rank;
    peer(failed_rank_).has_left = true;
  }
  return PacketOutcome::kEnd;
}

}  // namespace torch::comms::transport::nvl
