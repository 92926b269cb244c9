#include "transport/shm/shm_transport.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <unordered_map>

#include "base/net/listener.hpp"
#include "base/os/log.hpp"
#include "base/os/system_error.hpp"
#include "transport/connect/handshake_queue.hpp"
#include "transport/protocol/framed_transport.hpp"
#include "transport/protocol/protocol_thresholds.hpp"
#include "transport/shm/cma.hpp"
#include "transport/shm/fence.hpp"
#include "transport/shm/shared_arena.hpp"
#include "transport/shm/shared_file.hpp"
#include "transport/shm/shm_connection.hpp"
#include "transport/shm/shm_connector.hpp"
#include "transport/shm/shm_handshake.hpp"
#include "transport/waiting/timer.hpp"

namespace torch::comms::transport::shm {
namespace {

constexpr const char* kNoPeerMemory = "the peer has no memory for the shared segment: ";
constexpr const char* kNoOwnMemory = "this rank has no memory for the shared segment: ";
constexpr const char* kTcpHint = "; hint ctran::transport=tcp needs no shared memory";
constexpr int kPollsPerSocketCheck = 256;  // polls of the rings between two checks of the sockets
constexpr int kEventsAtOnce = 16;

std::string exited_text(int process) {
  return "its process (pid " + std::to_string(process) + ") has exited";
}

ShmOptions with_defaults(ShmOptions options) {
  if (options.ring.bulk_bytes == 0) {
    const auto peers = static_cast<uint32_t>(std::max(1, options.local_ranks - 1));
    options.ring.bulk_bytes =
        std::clamp<uint32_t>(std::bit_floor((64u << 20) / peers), 64 * 1024, 512 * 1024);
  }
  if (options.ring.chunk_bytes == 0)
    options.ring.chunk_bytes = std::min<uint32_t>(128 * 1024, options.ring.bulk_bytes / 4);
  options.ring.require_valid();
  if (options.eager_bytes == 0) options.eager_bytes = kMaxEagerBytes;
  if (options.inline_eager_bytes == 0) options.inline_eager_bytes = kMaxInlineEagerBytes;
  options.eager_bytes = std::min<uint64_t>(options.eager_bytes, options.ring.chunk_bytes);
  options.inline_eager_bytes =
      std::min<uint64_t>(options.inline_eager_bytes, options.ring.chunk_bytes);
  return options;
}

// Returns: the process id in `text`; 0 if it is not a number.
int process_id(const std::string& text) {
  int id = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, id);
  return code == std::errc() && stop == end ? id : 0;
}

Endpoint endpoint_of(const ShmOptions& options) {
  const auto instance = random_number();
  return {"shm",
          options.rank,
          instance,
          host_identity(),
          {"torchcomms/" + std::to_string(instance) + "/" + std::to_string(random_number()),
           std::to_string(::getpid())}};
}

// An accepted connection that has not sent its hello.
struct PendingShmConnection {
  base::FileDescriptor descriptor;
  int socket() const noexcept { return descriptor.get(); }
};

class ShmTransport final : public FramedTransport {
 public:
  explicit ShmTransport(const ShmOptions& options)
      : FramedTransport(options, endpoint_of(options)),
        ring_(options.ring),
        single_copy_(options.single_copy && is_cma_available()),
        single_copy_wanted_(options.single_copy),
        listener_(listen_at(endpoint_.addresses.front())),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw base::system_error("epoll");
    watch(listener_.get());
    if (const auto* arena = SharedArena::find()) {
      arena_ = std::make_unique<RegisteredMemory>(regions_, options_.rank, arena->bytes(),
                                                  base::Mapping{}, arena->file_location());
      endpoint_.addresses.push_back(serialize(arena_->handle()));
    }
  }
  ~ShmTransport() override { close_peers(); }

  std::string_view name() const noexcept override { return "shm"; }
  TransportCapabilities capabilities() const override {
    const auto forbidden = std::find_if(
        shm_peers_.begin(), shm_peers_.end(),
        [](const auto& shm_peer) { return shm_peer.second.pid != 0 && !shm_peer.second.can_copy; });
    const bool copies = single_copy_ && forbidden == shm_peers_.end();
    return {.maps_memory = true,
            .has_passive_target = copies,
            .has_single_copy = copies,
            .eager_bytes = options_.eager_bytes,
            .chunk_bytes = ring_.chunk_bytes,
            .reason = copies         ? (arena_ ? "peers map the tensors of this process" : "")
                      : single_copy_ ? "the system does not permit CMA with the process of rank " +
                                           std::to_string(forbidden->first)
                      : single_copy_wanted_ ? "the system does not permit CMA (process_vm_readv)"
                                            : "single_copy is switched off"};
  }
  int event_fd() const noexcept override { return epoll_.get(); }
  void poll_all_next() noexcept override { polls_until_check_ = 0; }

  std::unique_ptr<MemoryRegion> register_memory(Bytes bytes) override;
  std::unique_ptr<MemoryRegion> allocate(uint64_t size) override;
  std::unique_ptr<RemoteMemory> import(const MemoryHandle& handle) override;

  uint64_t rejected() const noexcept { return rejected_; }

 private:
  void start_connection(int peer, const Endpoint& endpoint) override;
  void on_endpoint(int peer, const Endpoint& endpoint) noexcept override;
  bool progress_connections() noexcept override;
  DirectResult put_directly(const RemoteMemory& to, uint64_t offset,
                            ConstBytes from) noexcept override;
  DirectResult get_directly(const RemoteMemory& from, uint64_t offset,
                            Bytes into) noexcept override;
  DirectResult signal_directly(const RemoteMemory& to, uint64_t offset, uint64_t amount,
                               CounterOp op) noexcept override;
  void fence_peers() noexcept override { shm::fence_peers(); }
  void on_wake() noexcept override { poll_all_next(); }

  void watch(int descriptor);
  void watch_peer(int peer, int process);
  template <class Step>
  void step_or_fail(int peer, const Step& step);
  void connect_peer(int peer, ShmConnector& connector);
  bool retry_connects();
  void check_connector(const ShmConnector& connector);
  void set_timer();
  void drop_connectors();
  void attach(int peer, base::FileDescriptor socket, const ShmSegment& segment, int side);
  static ShmSegment adopt(int socket, base::FileDescriptor file, const RingShape& shape);
  base::FileDescriptor open_file(const MemoryHandle& handle) const;
  bool map(const MemoryHandle& handle, RemoteMemory& memory);
  bool accept_pending();
  bool read_handshake(PendingShmConnection& pending);
  bool handle_event(int descriptor);
  void process_ended(int peer);
  void socket_ended(int peer);
  DirectResult direct_result(const RemoteMemory& memory, CmaResult result) noexcept;
  int process_of(int peer) const noexcept;
  std::string path_of(const MemoryHandle& handle) const;
  bool copies_with(int peer) const noexcept;
  void forbid_copies(int peer) noexcept;

  RingShape ring_;
  const bool single_copy_, single_copy_wanted_;  // CMA works on this system; the user wants it
  base::Listener listener_;
  base::FileDescriptor epoll_;
  std::unique_ptr<RegisteredMemory> arena_;      // this process's arena, if it has one
  std::unordered_map<int, ShmPeer> shm_peers_;   // by peer
  std::unordered_map<int, int> peer_of_socket_;  // peer by socket and by pidfd
  // By peer, until the peer has taken the segment.
  std::unordered_map<int, ShmConnector> connectors_;
  std::optional<Timer> timer_;  // for retries of connectors
  HandshakeQueue<PendingShmConnection> handshakes_{
      [this](PendingShmConnection& pending) { return read_handshake(pending); }};
  uint64_t rejected_ = 0;
  int polls_until_check_ = 0;
};

void ShmTransport::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw base::system_error("epoll", {.rank = options_.rank});
}

void ShmTransport::start_connection(int peer, const Endpoint& endpoint) {
  if (endpoint.host != endpoint_.host)
    throw CommError(Errc::kInvalidArgument, "the peer is on another host, or in another container",
                    {.rank = options_.rank, .peer = peer});
  const auto address_count = endpoint.addresses.size();
  const int process =
      address_count == 2 || address_count == 3 ? process_id(endpoint.addresses[1]) : 0;
  if (process <= 0)
    throw CommError(Errc::kInvalidArgument, "the endpoint is not one of the shm transport",
                    {.rank = options_.rank, .peer = peer});
  if (peer == options_.rank)
    throw CommError(Errc::kInvalidArgument,
                    "a rank connects to itself by the self transport, not by shm",
                    {.rank = options_.rank, .peer = peer});
  watch_peer(peer, process);
  if (!shm_peers_[peer].end_reason.empty()) return process_ended(peer);
  // The smaller rank connects, so that a pair makes one connection.
  if (peer < options_.rank || connectors_.contains(peer)) return;
  ShmHello hello;
  hello.from = options_.rank;
  hello.to = peer;
  hello.instance = endpoint.instance;
  hello.job = options_.job;
  hello.shape = ring_;
  std::optional<ShmSegment> segment;
  try {
    segment.emplace(ShmSegment::create(ring_));
  } catch (const CommError& error) {
    hello.refusal = make_refusal(error.why());
    peer_of(peer).fail(error.code(), kNoOwnMemory + error.why() + kTcpHint);
  }
  ShmConnector connector(endpoint.addresses.front(), hello, std::move(segment));
  connect_peer(peer, connectors_.emplace(peer, std::move(connector)).first->second);
}

// Watches the peer's process, so that its end is seen even before it has connected.
void ShmTransport::watch_peer(int peer, int process) {
  ShmPeer& shm_peer = shm_peers_[peer];
  if (shm_peer.pid != 0) return;
  shm_peer.pid = process;
  errno = 0;
  shm_peer.pidfd = open_pidfd(process);
  if (!shm_peer.pidfd && errno == ESRCH) {
    shm_peer.end_reason = exited_text(process);
    return;
  }
  if (shm_peer.pidfd) {
    peer_of_socket_[shm_peer.pidfd.get()] = peer;
    watch(shm_peer.pidfd.get());
  }
  shm_peer.can_copy = single_copy_ && is_cma_allowed(process);
  if (single_copy_ && !shm_peer.can_copy) forbid_copies(peer);
}

// Runs `step`; its error ends the connection to `peer`.
template <class Step>
void ShmTransport::step_or_fail(int peer, const Step& step) {
  try {
    step();
  } catch (const CommError& error) {
    peer_of(peer).fail(error.code(), error.why());
  }
}

void ShmTransport::connect_peer(int peer, ShmConnector& connector) {
  step_or_fail(peer, [&] {
    if (auto socket = connector.connect(std::chrono::steady_clock::now()))
      attach(peer, std::move(socket), connector.segment(), 0);
    check_connector(connector);
  });
}

void ShmTransport::check_connector(const ShmConnector& connector) {
  if (!connector.error_text().empty())
    throw CommError(connector.error_code(), connector.error_text());
  set_timer();
}

// Sets the timer for the next retry of a connector.
void ShmTransport::set_timer() {
  auto next = ShmConnector::Time::max();
  for (const auto& [peer, connector] : connectors_) next = std::min(next, connector.retry_at());
  if (next == ShmConnector::Time::max()) return;
  if (!timer_) {
    Timer timer;
    watch(timer.get());
    timer_ = std::move(timer);
  }
  const auto left = next - std::chrono::steady_clock::now();
  timer_->after(std::max<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(1)));
}

bool ShmTransport::retry_connects() {
  timer_->clear_expiration();
  drop_connectors();
  const auto now = std::chrono::steady_clock::now();
  for (auto& [peer, connector] : connectors_)
    if (connector.retry_at() <= now) connect_peer(peer, connector);
  set_timer();
  return true;
}

void ShmTransport::drop_connectors() {
  std::erase_if(connectors_, [this](const auto& one) {
    const auto& [peer, connector] = one;
    const bool has_failed = connector.has_segment() ? state(peer) == PeerState::kFailed
                                                    : !connector.error_text().empty();
    return connector.is_accepted() || has_failed || !shm_peers_[peer].end_reason.empty();
  });
}

// Gives the connection this socket, in place of a socket over which the peer was not reached.
void ShmTransport::attach(int peer, base::FileDescriptor socket, const ShmSegment& segment,
                          int side) {
  if (side == 0) watch(socket.get());  // the accepting side already watches it
  ShmPeer& shm_peer = shm_peers_[peer];
  shm_peer.socket = std::move(socket);
  peer_of_socket_[shm_peer.socket.get()] = peer;
  if (connection(peer) != nullptr) return;
  open(peer, std::make_unique<ShmConnection>(segment.share(), side, shm_peer, peer,
                                             wait_policy().core_balancer));
}

bool ShmTransport::accept_pending() {
  bool moved = false;
  while (auto socket = listener_.accept()) {
    moved = true;
    int pid = 0;
    uint32_t user = 0;
    if (!read_peer_credentials(socket.get(), pid, user) || (user != ::geteuid() && user != 0)) {
      ++rejected_;
      continue;
    }
    watch(socket.get());
    if (handshakes_.add({std::move(socket)})) ++rejected_;
  }
  return moved;
}

// Reads the hello of an accepted connection and accepts or rejects it.
// Returns: false if the hello has not arrived.
bool ShmTransport::read_handshake(PendingShmConnection& pending) {
  ShmHello hello;
  base::FileDescriptor file;
  const auto status = read_hello(pending.socket(), hello, file);
  if (status == PacketStatus::kIncomplete) return false;
  auto socket = std::move(pending.descriptor);
  if (status == PacketStatus::kDescriptorsExhausted) return true;  // the peer retries
  const bool refuses = status == PacketStatus::kWithoutDescriptor;
  const bool is_expected = (status == PacketStatus::kPacket || refuses) &&
                           constant_time_equal(hello.job, options_.job) &&
                           hello.instance == endpoint_.instance && hello.to == options_.rank &&
                           hello.from >= 0 && hello.from < options_.rank && hello.shape == ring_ &&
                           !shm_peers_[hello.from].socket;
  if (!is_expected) {
    ++rejected_;
    return true;
  }
  if (refuses) {
    peer_of(hello.from)
        .fail(Errc::kResourceExhausted, kNoPeerMemory + refusal_text(hello.refusal) + kTcpHint);
    return true;
  }
  step_or_fail(hello.from, [&] {
    const auto segment = adopt(socket.get(), std::move(file), hello.shape);
    if (peer_of(hello.from).state() != PeerState::kConnecting) {
      // The peer must not retry.
      segment.sleep_flags(1).fetch_or(SleepFlags::kAttached, std::memory_order_release);
      return;
    }
    int process = 0;
    uint32_t user = 0;
    read_peer_credentials(socket.get(), process, user);
    watch_peer(hello.from, process);
    attach(hello.from, std::move(socket), segment, 1);
  });
  return true;
}

// Maps the peer's segment. If this rank cannot map it, it sends the reason to the peer over
// `socket`.
ShmSegment ShmTransport::adopt(int socket, base::FileDescriptor file, const RingShape& shape) {
  try {
    return ShmSegment::adopt(std::move(file), shape);
  } catch (const CommError& error) {
    if (error.code() != Errc::kResourceExhausted) throw;
    const auto refusal = make_refusal(error.why());
    ::send(socket, refusal.data(), refusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    throw CommError(error.code(), kNoOwnMemory + error.why() + kTcpHint);
  }
}

// Handles an event of a descriptor.
bool ShmTransport::handle_event(int descriptor) {
  if (descriptor == listener_.get()) return accept_pending();
  if (timer_ && descriptor == timer_->get()) return retry_connects();
  const auto found = peer_of_socket_.find(descriptor);
  if (found == peer_of_socket_.end()) return handshakes_.poll_socket(descriptor);
  const int peer = found->second;
  const ShmPeer& shm_peer = shm_peers_[peer];
  const bool process = shm_peer.pidfd && descriptor == shm_peer.pidfd.get();
  bool ended = process, was_woken = false;
  while (!ended) {
    ShmRefusal refusal{};  // or a wake-up, of one byte
    const auto got = ::recv(descriptor, refusal.data(), refusal.size(), MSG_DONTWAIT);
    if (got == ssize_t{sizeof refusal})
      fail(peer, Errc::kResourceExhausted, kNoPeerMemory + refusal_text(refusal) + kTcpHint);
    if (got > 0) {
      was_woken = true;
      continue;
    }
    ended = got == 0 || (errno != EAGAIN && errno != EINTR);
    break;
  }
  // A wake-up counts as progress: it may be for a counter, and the waiting caller must check again.
  if (!ended) return was_woken;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
  peer_of_socket_.erase(found);
  if (process)
    process_ended(peer);
  else
    socket_ended(peer);
  return true;
}

// Handles the end of a peer's process, which may have connected and sent messages before.
void ShmTransport::process_ended(int peer) {
  auto& ended = shm_peers_[peer].end_reason;
  if (ended.empty()) ended = exited_text(process_of(peer));
  if (connection(peer) == nullptr) {
    accept_pending();
    handshakes_.poll_all();
  }
  if (connection(peer) == nullptr) fail(peer, Errc::kPeerFailed, exited_text(process_of(peer)));
}

void ShmTransport::socket_ended(int peer) {
  ShmPeer& shm_peer = shm_peers_[peer];
  const auto found = connectors_.find(peer);
  const bool will_retry = found != connectors_.end() && connection(peer) != nullptr &&
                          found->second.on_socket_ended(std::chrono::steady_clock::now());
  if (!will_retry) {
    if (shm_peer.end_reason.empty())
      shm_peer.end_reason =
          "the shm connection closed: the peer process has exited or closed the transport";
    return;
  }
  shm_peer.socket = base::FileDescriptor();
  step_or_fail(peer, [&] { check_connector(found->second); });
}

bool ShmTransport::progress_connections() noexcept {
  if (--polls_until_check_ > 0) return false;
  polls_until_check_ = kPollsPerSocketCheck;
  bool moved = false;
  try {
    if (!connectors_.empty()) drop_connectors();
    // One event at a time: handling one may close the descriptor of the next one and open another.
    epoll_event event;
    for (int i = 0; i < kEventsAtOnce && ::epoll_wait(epoll_.get(), &event, 1, 0) == 1; ++i)
      moved |= handle_event(event.data.fd);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning, std::string("shm transport: ") + error.what());
  }
  if (moved) polls_until_check_ = 0;
  return moved;
}

std::unique_ptr<MemoryRegion> ShmTransport::register_memory(Bytes bytes) {
  return std::make_unique<RegisteredMemory>(regions_, options_.rank, bytes, base::Mapping{},
                                            find_shared_file(bytes));
}

std::unique_ptr<MemoryRegion> ShmTransport::allocate(uint64_t size) {
  const auto whole = std::max<uint64_t>(size, 1);
  auto file = create_memory("torchcomms-memory", whole);
  reserve_memory(file, whole);
  auto mapping = map_memory(file, whole);
  struct stat found{};
  ::fstat(file.get(), &found);
  const Bytes bytes(mapping.bytes().data(), size);
  return std::make_unique<RegisteredMemory>(regions_, options_.rank, bytes, std::move(mapping),
                                            FileLocation{std::move(file), found.st_ino, 0});
}

int ShmTransport::process_of(int peer) const noexcept {
  const auto found = shm_peers_.find(peer);
  return found == shm_peers_.end() ? 0 : found->second.pid;
}

bool ShmTransport::copies_with(int peer) const noexcept {
  const auto found = shm_peers_.find(peer);
  return found != shm_peers_.end() && found->second.can_copy;
}

void ShmTransport::forbid_copies(int peer) noexcept {
  shm_peers_[peer].can_copy = false;
  base::log(base::LogLevel::kInfo,
            "shm transport: the system does not permit CMA with the process of rank " +
                std::to_string(peer) +
                "; messages are copied through shared memory, and puts and gets by the owner of "
                "the memory");
}

std::unique_ptr<RemoteMemory> ShmTransport::import(const MemoryHandle& handle) {
  auto memory = FramedTransport::import(handle);
  if (handle.size == 0) return memory;
  if (handle.descriptor < 0) {
    if (copies_with(handle.rank))
      direct_result(*memory, cma_probe(process_of(handle.rank), handle.key_address, handle.key));
    return memory;
  }
  if (!map(handle, *memory))
    base::log(base::LogLevel::kInfo, "shm transport: cannot map memory of rank " +
                                         std::to_string(handle.rank) + " (" + path_of(handle) +
                                         "); its owner copies puts and gets instead");
  return memory;
}

std::string ShmTransport::path_of(const MemoryHandle& handle) const {
  return "/proc/" + std::to_string(process_of(handle.rank)) + "/fd/" +
         std::to_string(handle.descriptor);
}

// Returns: empty if the file is not the one that the handle describes.
base::FileDescriptor ShmTransport::open_file(const MemoryHandle& handle) const {
  base::FileDescriptor file(::open(path_of(handle).c_str(), O_RDWR | O_CLOEXEC));
  struct stat found{};
  const bool is_same_file = file && ::fstat(file.get(), &found) == 0 && found.st_ino == handle.file;
  const auto file_bytes = is_same_file ? static_cast<uint64_t>(found.st_size) : 0;
  const bool whole =
      handle.file_offset <= file_bytes && handle.size <= file_bytes - handle.file_offset;
  return is_same_file && whole ? std::move(file) : base::FileDescriptor();
}

// Maps a peer's memory, also for reading messages out of it as long as the mapping lives.
// Returns: false if it cannot be mapped.
bool ShmTransport::map(const MemoryHandle& handle, RemoteMemory& memory) {
  const auto file = open_file(handle);
  if (!file) return false;
  memory.mapping_offset = handle.file_offset % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  try {
    memory.mapping = std::make_shared<const base::Mapping>(map_memory(
        file, handle.size + memory.mapping_offset, handle.file_offset - memory.mapping_offset));
  } catch (const CommError&) {
    return false;
  }
  auto& known = shm_peers_[handle.rank].mapped;
  std::erase_if(known, [](const auto& one) { return one.mapping.expired(); });
  known.push_back({handle, memory.mapping_offset, memory.mapping});
  return true;
}

// Maps the peer's arena, if it has one. Messages out of an arena that is not mapped are copied by
// CMA.
void ShmTransport::on_endpoint(int peer, const Endpoint& endpoint) noexcept {
  try {
    auto& shm_peer = shm_peers_[peer];
    if (endpoint.addresses.size() != 3 || !shm_peer.can_copy || shm_peer.arena) return;
    std::string why = "its file cannot be opened";
    try {
      auto handle = parse_memory_handle(endpoint.addresses[2]);
      handle.rank = peer;
      if (const auto file = open_file(handle); file && handle.file_offset == 0) {
        shm_peer.arena = map_arena(shm_peer.pid, handle, file);
        shm_peer.mapped.push_back({handle, 0, shm_peer.arena});
      }
    } catch (const CommError& error) {
      why = error.what();
    }
    if (!shm_peer.arena)
      base::log(base::LogLevel::kInfo, "shm transport: cannot map the tensors of rank " +
                                           std::to_string(peer) + " (" + why +
                                           "); messages from them are copied");
  } catch (const std::bad_alloc&) {  // the arena is not mapped then
  }
}

FramedTransport::DirectResult ShmTransport::direct_result(const RemoteMemory& memory,
                                                          CmaResult result) noexcept {
  if (result == CmaResult::kDone) return DirectResult::kDone;
  if (result == CmaResult::kPeerExited)
    fail(memory.handle.rank, Errc::kPeerFailed, exited_text(process_of(memory.handle.rank)));
  if (result != CmaResult::kForbidden) return DirectResult::kFailed;
  forbid_copies(memory.handle.rank);
  return DirectResult::kNo;
}

FramedTransport::DirectResult ShmTransport::put_directly(const RemoteMemory& to, uint64_t offset,
                                                         ConstBytes from) noexcept {
  if (const auto mapped = to.mapped(); !mapped.empty()) {
    std::memcpy(mapped.data() + offset, from.data(), from.size());
    return DirectResult::kDone;
  }
  if (!copies_with(to.handle.rank) || connection(to.handle.rank) == nullptr)
    return DirectResult::kNo;
  const auto& handle = to.handle;
  return direct_result(to, cma_write(process_of(handle.rank), handle.address + offset, from,
                                     handle.key_address, handle.key));
}

FramedTransport::DirectResult ShmTransport::get_directly(const RemoteMemory& from, uint64_t offset,
                                                         Bytes into) noexcept {
  if (const auto mapped = from.mapped(); !mapped.empty()) {
    std::memcpy(into.data(), mapped.data() + offset, into.size());
    return DirectResult::kDone;
  }
  if (!copies_with(from.handle.rank) || connection(from.handle.rank) == nullptr)
    return DirectResult::kNo;
  const auto& handle = from.handle;
  return direct_result(from, cma_read(process_of(handle.rank), handle.address + offset, into,
                                      handle.key_address, handle.key));
}

FramedTransport::DirectResult ShmTransport::signal_directly(const RemoteMemory& to, uint64_t offset,
                                                            uint64_t amount,
                                                            CounterOp op) noexcept {
  auto* peer_connection = connection(to.handle.rank);
  if (peer_connection == nullptr || to.mapped().empty()) return DirectResult::kNo;
  update_counter(to.mapped().data() + offset, amount, op);
  peer_connection->wake_peer();
  return DirectResult::kDone;
}

}  // namespace

std::unique_ptr<Transport> make_shm_transport(ShmOptions options) {
  return std::make_unique<ShmTransport>(with_defaults(std::move(options)));
}

void require_segment_memory(ShmOptions options) {
  ShmSegment::create(with_defaults(std::move(options)).ring);
}

uint64_t rejected_connections(const Transport& shm) {
  return dynamic_cast<const ShmTransport&>(shm).rejected();
}

}  // namespace torch::comms::transport::shm
