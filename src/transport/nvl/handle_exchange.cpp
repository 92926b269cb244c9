#include "transport/nvl/handle_exchange.hpp"

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

#include "base/os/host.hpp"
#include "base/os/system_error.hpp"
#include "transport/connect/unix_socket.hpp"
#include "transport/nvl/peer_descriptor.hpp"

namespace torch::comms::transport::nvl {
namespace {

using Clock = std::chrono::steady_clock;

// Timeout for packets that have been sent already.
constexpr std::chrono::seconds kArrivalTimeout{10};
constexpr const char* kReceiveFailed = "cannot receive the memory handle of a peer";

// The one packet from each rank to each peer, with the descriptor of its memory; of /dev/null if
// the memory has none.
struct MemoryExportPacket {
  int32_t from = -1;
  uint32_t spare = 0;
  base::Secret secret = {};  // of the receiving rank
  gpu::MemoryExportInfo info;
};

[[noreturn]] void fail(const std::string& why) { throw CommError(Errc::kSystem, why); }

class HandleExchangeRun {
 public:
  HandleExchangeRun(const HandleExchange& calls, const RankContext& context,
                    const MemoryRequest& request, const AllGatherStrings& all_gather)
      : exchange_calls_(calls), context_(context), request_(request), all_gather_(all_gather) {}

  std::string run() {
    if (auto why = gather_descriptors(); !why.empty()) return why;
    if (auto why = agree([this] { send_export(); }); !why.empty()) return why;
    return agree([this] { receive_exports(); });
  }

 private:
  std::string gather_descriptors() {
    PeerDescriptor own;
    own.size_bytes = request_.size_bytes;
    own.initial_bytes = request_.initial_bytes == 0 ? request_.size_bytes : request_.initial_bytes;
    own.purpose = FixedString<64>(request_.purpose);
    own.host = FixedString<128>(base::loopback_identity());
    auto unavailable_reason = request_.unavailable_reason;
    if (unavailable_reason.empty())
      unavailable_reason = error_text_of([&] {
        if (auto why = context_.driver->unmappable_reason(context_.device); !why.empty()) fail(why);
        own.device = context_.driver->uuid_of(context_.device);
        secret_ = own.secret = base::random_secret();
        const auto name = "torchcomms-nvl-" + std::to_string(base::random_number());
        own.socket = FixedString<48>(name);
        listener_ = listen_at(name);
      });
    own.unavailable_reason = FixedString<200>(unavailable_reason);
    for (const auto& text : all_gather_(serialize_descriptor(own)))
      descriptors_.push_back(parse_descriptor(text));
    return find_incompatibility(descriptors_);
  }

  // Runs `body` on all ranks.
  // Returns: the error of the first rank that failed; "" if none did.
  template <class Body>
  std::string agree(const Body& body) {
    return first_error(all_gather_(error_text_of(body)));
  }

  // Sends this rank's memory to all peers. Does not block: the packets stay in the queues of the
  // peers' sockets.
  void send_export() {
    for (int peer = 0; peer < context_.size; ++peer) require_access(peer);
    const auto least = std::ranges::min_element(descriptors_, {}, &PeerDescriptor::initial_bytes);
    const auto own = exchange_calls_.export_memory(least->initial_bytes);
    const base::FileDescriptor dev_null(own.descriptor ? -1 : ::open("/dev/null", O_CLOEXEC));
    const auto& descriptor = own.descriptor ? own.descriptor : dev_null;
    for (int peer = 0; peer < context_.size; ++peer) {
      if (peer == context_.rank) continue;
      const auto& to = descriptor_of_rank(peer);
      auto socket = connect_to(to.socket.text());
      const MemoryExportPacket packet{context_.rank, 0, to.secret, own.info};
      if (!socket ||
          !send_packet(socket.get(), std::as_bytes(std::span(&packet, 1)), descriptor.get()))
        fail("cannot send the memory handle to rank " + std::to_string(peer) +
             " by Unix socket: " + std::strerror(errno));
      sent_.push_back(std::move(socket));
    }
  }

  void require_access(int peer) const {
    const auto& driver = *context_.driver;
    const auto& uuid = descriptor_of_rank(peer).device;
    const auto device = driver.device_of(uuid);
    const auto own = "device " + std::to_string(context_.device);
    const auto its = device ? "device " + std::to_string(*device) + ", which rank " +
                                  std::to_string(peer) + " has"
                            : "the device of rank " + std::to_string(peer);
    // For a device that this process does not see, only mapping its memory shows whether it is
    // reachable.
    if (device && !driver.can_access_peer(context_.device, *device))
      fail(own + " does not reach the memory of " + its);
    // NVLink is required: over PCIe, where memory may be mapped as well, a line of 128 bytes may
    // arrive in parts.
    const std::optional<bool> joined = device ? driver.has_native_atomics(context_.device, *device)
                                              : driver.is_joined(context_.device, uuid);
    if (!joined)
      fail("cannot determine whether NVLink joins " + own + " to " + its +
           ": this process does not see that device, and libnvidia-ml.so.1 does not know; set "
           "CUDA_VISIBLE_DEVICES of all ranks to all their devices");
    if (!*joined) fail(own + " is not joined by NVLink to " + its);
  }

  // Maps the memory that the peers have sent.
  void receive_exports() {
    has_arrived_.resize(static_cast<size_t>(context_.size));
    const auto deadline = Clock::now() + kArrivalTimeout;
    for (int missing = context_.size - 1; missing > 0;) missing -= receive_one(deadline) ? 1 : 0;
  }

  // Receives the memory of one peer. If no descriptor is free for it, the exchange fails at once.
  // Returns: false if the connection was not from a peer of this exchange.
  bool receive_one(Clock::time_point deadline) {
    wait_readable(listener_.get(), deadline);
    const base::FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && base::is_resource_exhausted(errno)) throw base::system_error(kReceiveFailed);
    int process = 0;
    uint32_t user = 0;
    if (!socket || !read_peer_credentials(socket.get(), process, user) ||
        (user != ::geteuid() && user != 0))
      return false;
    wait_readable(socket.get(), deadline);
    MemoryExportPacket packet;
    base::FileDescriptor memory;
    const auto status =
        read_packet(socket.get(), std::as_writable_bytes(std::span(&packet, 1)), memory);
    if (status == PacketStatus::kDescriptorsExhausted)
      throw base::system_error(EMFILE, kReceiveFailed);
    const bool is_expected =
        status == PacketStatus::kPacket && base::constant_time_equal(packet.secret, secret_) &&
        packet.from >= 0 && packet.from < context_.size && packet.from != context_.rank &&
        !has_arrived_[static_cast<size_t>(packet.from)];
    if (!is_expected) return false;
    has_arrived_[static_cast<size_t>(packet.from)] = true;
    exchange_calls_.import_memory(packet.from, {std::move(memory), packet.info});
    return true;
  }

  static void wait_readable(int descriptor, Clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd polled{descriptor, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&polled, 1, static_cast<int>(left.count())) == 0)
      fail("timed out after 10 s waiting for the memory handle of a peer");
  }

  const PeerDescriptor& descriptor_of_rank(int rank) const {
    return descriptors_[static_cast<size_t>(rank)];
  }

  const HandleExchange& exchange_calls_;
  const RankContext& context_;
  const MemoryRequest& request_;
  const AllGatherStrings& all_gather_;
  base::Secret secret_ = {};
  base::FileDescriptor listener_;
  std::vector<PeerDescriptor> descriptors_;
  std::vector<base::FileDescriptor> sent_;  // open until all peers have read their packets
  std::vector<bool> has_arrived_;
};

}  // namespace

std::string HandleExchange::run(const RankContext& context, const MemoryRequest& request,
                                const AllGatherStrings& all_gather) const {
  TC_CHECK(context.driver || !request.unavailable_reason.empty());
  return HandleExchangeRun(*this, context, request, all_gather).run();
}

}  // namespace torch::comms::transport::nvl
