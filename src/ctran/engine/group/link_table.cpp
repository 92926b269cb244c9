#include "ctran/engine/group/link_table.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/os/cache_info.hpp"
#include "base/text/utf8.hpp"
#include "transport/byte_stream.hpp"
#include "transport/connect/user_identity.hpp"
#include "transport/self_transport.hpp"
#include "transport/shm/shm_transport.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace torch::comms::ctran {
namespace {

using transport::Endpoint;
using transport::Transport;

// Rings are sized before the number of ranks per host is known, and must have the same layout on
// all ranks.
constexpr int kMostLocalRanks = 64;

constexpr size_t kMostReason = 320;  // bytes of RankAddress::shared_memory_error

// What a rank publishes about itself in the address exchange.
struct RankAddress {
  std::string host;
  transport::UserIdentity user;
  // Why the rank has no shared memory; "": it has, or does not use it.
  std::string shared_memory_error;
  transport::CpuSet cores;
  std::optional<Endpoint> shm, tcp;
};

std::string format_count(int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

transport::shm::ShmOptions shm_options(transport::TransportOptions options) {
  transport::shm::ShmOptions all;
  static_cast<transport::TransportOptions&>(all) = std::move(options);
  return all;
}

std::string host_of(const LinkContextOptions& options) {
  return transport::host_identity() + (options.host.empty() ? "" : "/" + options.host);
}

RankAddress parse_rank_address(std::string_view text, const transport::Secret& job) {
  transport::ByteReader reader(text, "address blob of a rank");
  RankAddress blob;
  blob.host = reader.text();
  blob.user = {std::string(reader.text()), 0};
  blob.user.id = reader.number<uint32_t>();
  blob.shared_memory_error = reader.text();
  blob.cores = reader.number<transport::CpuSet>();
  for (auto count = reader.number<uint8_t>(); count > 0; --count) {
    auto endpoint = transport::parse_endpoint(reader.text(), job);
    (endpoint.link == "shm" ? blob.shm : blob.tcp) = std::move(endpoint);
  }
  reader.require(reader.is_at_end(), "unexpected bytes at the end");
  return blob;
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

// Returns why two ranks share no memory; "" if they do. Both ranks get the same answer, except for
// the order of the names.
std::string no_sharing_reason(const RankAddress& self, int peer, const RankAddress& other) {
  const auto them = rank_text(peer);
  if (other.host != self.host) return them + " is on another host, or in another container";
  if (other.user.user_namespace != self.user.user_namespace)
    return them + " is in another user namespace";
  if (other.user.id != self.user.id)
    return them + " runs as user " + std::to_string(other.user.id) + ", this rank as user " +
           std::to_string(self.user.id);
  if (!self.shared_memory_error.empty())
    return "this rank has no shared memory: " + self.shared_memory_error;
  if (!other.shared_memory_error.empty())
    return them + " has no shared memory: " + other.shared_memory_error;
  return "";
}

// Ranks with equal keys share memory, as far as they have shared memory.
std::string sharers_of(const RankAddress& blob) {
  return blob.host + "/" + blob.user.user_namespace + "/" + std::to_string(blob.user.id);
}

}  // namespace

LinkTable::LinkTable(int rank, int size, const transport::Secret& job,
                     const LinkContextOptions& options)
    : rank_(rank), size_(size), job_(job), options_(options) {
  if (size < 1 || rank < 0 || rank >= size)
    throw CommError(Errc::kInvalidArgument, "rank " + std::to_string(rank) + " is outside [0, " +
                                                std::to_string(size) + ")");
  if (size > 1 && options.links != LinkPolicy::kTcp) open_shared_memory();
  if (size > 1 && options.links != LinkPolicy::kShm) links_[kTcp] = make(kTcp);
}

void LinkTable::open_shared_memory() {
  try {
    transport::shm::require_segment_memory(shm_options(link_options()));
  } catch (const CommError& error) {
    shared_memory_error_ = base::utf8_prefix(error.why(), kMostReason);
    return;
  }
  links_[kShm] = make(kShm);
}

transport::TransportOptions LinkTable::link_options() const {
  transport::TransportOptions options;
  options.rank = rank_;
  options.size = size_;
  options.local_ranks = std::min(size_, kMostLocalRanks);
  options.job = job_;
  options.wrap_connection = options_.wrap;
  return options;
}

std::unique_ptr<Transport> LinkTable::make(LinkKind which) const {
  auto options = link_options();
  if (which == kSelf) return make_self_transport(options);
  if (which == kShm) {
    auto all = shm_options(std::move(options));
    all.single_copy = options_.single_copy;
    return make_shm_transport(all);
  }
  transport::tcp::TcpOptions all;
  static_cast<transport::TransportOptions&>(all) = std::move(options);
  all.interface = options_.interface;
  return make_tcp_transport(all);
}

std::string LinkTable::serialize_address() const {
  transport::ByteWriter writer;
  const auto user = transport::current_user();
  writer.text(host_of(options_)).text(user.user_namespace).add(user.id).text(shared_memory_error_);
  writer.add(transport::CpuSet::of_this_thread());
  const auto is_open = [](const auto& link) { return link != nullptr; };
  writer.add(static_cast<uint8_t>(std::count_if(links_.begin(), links_.end(), is_open)));
  for (const auto& link : links_)
    if (link) writer.text(serialize(link->endpoint(), job_));
  return writer.release();
}

void LinkTable::set_addresses(const std::vector<std::string>& blobs) {
  if (blobs.size() != static_cast<size_t>(size_))
    throw CommError(Errc::kMismatch, "the address exchange returned " +
                                         std::to_string(blobs.size()) + " blobs for " +
                                         std::to_string(size_) + " ranks");
  const auto count = blobs.size();
  endpoints_.resize(count);
  link_kinds_.assign(count, kTcp);
  is_connected_.assign(count, false);
  std::map<std::string, int, std::less<>> first_of_host, first_of_sharers;
  std::vector<transport::CpuSet> cores;
  std::vector<int> machines;
  const auto own = parse_rank_address(blobs[static_cast<size_t>(rank_)], job_);
  for (int peer = 0; peer < size_; ++peer) {
    auto blob = parse_rank_address(blobs[static_cast<size_t>(peer)], job_);
    machines.push_back(first_of_host.try_emplace(blob.host, peer).first->second);
    host_.push_back(first_of_sharers.try_emplace(sharers_of(blob), peer).first->second);
    cores.push_back(blob.cores);
    auto& which = link_kinds_[static_cast<size_t>(peer)];
    if (peer == rank_) {
      which = kSelf;
      continue;
    }
    const auto reason = no_sharing_reason(own, peer, blob);
    if (reason.empty() && links_[kShm] && blob.shm) which = kShm;
    auto& endpoint = which == kShm ? blob.shm : blob.tcp;
    if (!links_[which] || !endpoint)
      throw CommError(
          own.shared_memory_error.empty() && blob.shared_memory_error.empty()
              ? Errc::kUnsupported
              : Errc::kResourceExhausted,
          "hint ctran::transport=shm requires shared memory with every peer, but " + reason,
          {.rank = rank_, .peer = peer});
    if (tcp_reason_.empty() && options_.links == LinkPolicy::kAuto && blob.host == own.host)
      tcp_reason_ = reason;
    endpoints_[static_cast<size_t>(peer)] = std::move(*endpoint);
  }
  for (const auto unused : {kShm, kTcp})
    if (std::find(link_kinds_.begin(), link_kinds_.end(), unused) == link_kinds_.end())
      links_[unused].reset();
  for (const auto& link : links_)
    if (link) active_.push_back(link.get());
  set_cores(cores, machines);
}

// Sets the wait policy by who shares this rank's cores. Ranks that are bound to cores of their own
// spin, however many ranks share the host.
void LinkTable::set_cores(const std::vector<transport::CpuSet>& cores,
                          const std::vector<int>& machines) {
  const auto& own = cores[static_cast<size_t>(rank_)];
  const int here = machines[static_cast<size_t>(rank_)];
  std::map<int, transport::CoreSharing> of_hosts;  // by the first rank of each
  for (int peer = 0; peer < size_; ++peer) {
    const auto& theirs = cores[static_cast<size_t>(peer)];
    of_hosts[machines[static_cast<size_t>(peer)]].add(theirs);
    if (machines[static_cast<size_t>(peer)] == here && own.intersects(theirs))
      core_sharers_.add(theirs);
  }
  most_oversubscribed_host_ = of_hosts.begin()->second;
  for (const auto& [first, sharing] : of_hosts)
    if (sharing.denser_than(most_oversubscribed_host_)) most_oversubscribed_host_ = sharing;
  wait_policy_ = transport::WaitPolicy::for_ranks(core_sharers_.ranks, core_sharers_.cores.count());
  if (options_.move_threads && core_sharers_.ranks > 1 && own.count() > 1)
    core_balancer_ = std::make_unique<transport::CoreBalancer>(rank_, own);
  wait_policy_.core_balancer = core_balancer_.get();
  for (auto* link : active_) link->set_wait_policy(wait_policy_);
  const auto& sharing = of_hosts[here];
  base::set_cache_sharers(sharing.ranks, sharing.cores.count());
}

bool LinkTable::is_same_host(int a, int b) const noexcept {
  return host_[static_cast<size_t>(a)] == host_[static_cast<size_t>(b)];
}

std::string_view LinkTable::link_name(int peer) const noexcept {
  constexpr std::string_view kNames[] = {"self", "shm", "tcp"};
  return kNames[link_kinds_[static_cast<size_t>(peer)]];
}

std::string LinkTable::describe_links() const {
  std::string text;
  for (const auto which : {kShm, kTcp}) {
    const auto peers = std::count(link_kinds_.begin(), link_kinds_.end(), which);
    if (peers == 0 || !links_[which]) continue;
    auto reason = links_[which]->capabilities().reason;
    if (which == kTcp && !tcp_reason_.empty()) reason += (reason.empty() ? "" : "; ") + tcp_reason_;
    text += (text.empty() ? "" : "; ") + std::string(links_[which]->name()) + " to " +
            format_count(peers, "peer") + (reason.empty() ? "" : " (" + reason + ")");
  }
  return text.empty() ? "no peers" : text;
}

std::string LinkTable::describe_waiting() const {
  return std::string(wait_policy_.spins > 0 ? "spin" : "yield") + " first (" +
         format_count(core_sharers_.ranks, "rank") + " on " +
         format_count(core_sharers_.cores.count(), "core") +
         (core_balancer_ ? "; moves to cores with fewer)" : ")");
}

const transport::PeerFailure* LinkTable::failure(int peer) const noexcept {
  const auto& link = links_[link_kinds_[static_cast<size_t>(peer)]];
  return link && is_connected(peer) ? link->failure(peer) : nullptr;
}

int LinkTable::next_incoming_peer() noexcept {
  for (const auto which : {kShm, kTcp}) {
    if (!links_[which]) continue;
    const auto opened = links_[which]->connected_peers();
    while (polled_opened_[which] < opened.size()) {
      const int peer = opened[polled_opened_[which]++];
      if (!is_connected(peer)) return peer;
    }
  }
  return -1;
}

void LinkTable::close() noexcept {
  active_.clear();
  connected_.clear();
  is_connected_.assign(is_connected_.size(), false);
  for (auto& link : links_) link.reset();
}

Transport& LinkTable::link_to(int peer, bool* fresh) {
  const auto index = static_cast<size_t>(peer);
  auto& link = links_[link_kinds_[index]];
  if (is_connected_[index]) return *link;
  if (peer == rank_) {
    link = make(kSelf);
    link->connect(rank_, link->endpoint());
    active_.push_back(link.get());
  } else {
    link->connect(peer, endpoints_[index]);
    connected_.push_back(peer);
  }
  is_connected_[index] = true;
  if (fresh != nullptr) *fresh = true;
  return *link;
}

}  // namespace torch::comms::ctran
