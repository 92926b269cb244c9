#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/engine/group/link_context.hpp"
#include "transport/transport.hpp"
#include "transport/waiting/core_balancer.hpp"

namespace torch::comms::ctran {

// The links of this rank, and which link reaches which rank.
// Threads: one at a time, like the transports.
class LinkTable {
 public:
  // Opens the links that may be needed.
  // Throws: like LinkContext::create().
  LinkTable(int rank, int size, const transport::Secret& job, const LinkContextOptions& options);

  // serialize_address() returns what peers must know of this rank. set_addresses() takes the
  // addresses of all ranks, by rank, selects a link for each peer, and closes links that reach no
  // peer.
  // Throws: set_addresses() throws like LinkContext::create().
  std::string serialize_address() const;
  void set_addresses(const std::vector<std::string>& blobs);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_same_host(int a, int b) const noexcept;
  std::string_view link_name(int peer) const noexcept;
  // See LinkContext::describe_links().
  std::string describe_links() const;
  // Returns: ranks and cores of the host with the most ranks per core; the same on all ranks.
  const transport::CoreSharing& most_oversubscribed_host() const noexcept {
    return most_oversubscribed_host_;
  }
  // Returns: how waits spin, yield and sleep, given how many ranks share the cores of this process.
  const transport::WaitPolicy& wait_policy() const noexcept { return wait_policy_; }
  std::string describe_waiting() const;

  // Closes the links. No peer is connected any more.
  void close() noexcept;
  // Returns the link to a rank, and connects it on first use; `fresh` is set to true then.
  // Throws: CommError if the peer cannot be connected, for example without a free descriptor.
  transport::Transport& link_to(int peer, bool* fresh = nullptr);
  bool is_connected(int peer) const noexcept { return is_connected_[static_cast<size_t>(peer)]; }
  // Returns: the failure of a connected peer's link, else nullptr.
  const transport::PeerFailure* failure(int peer) const noexcept;
  // Returns: the next peer that has connected to this rank and that link_to() has not connected
  // yet; -1: none.
  int next_incoming_peer() noexcept;
  // Returns: the connected ranks, without this rank.
  std::span<const int> connected() const noexcept { return connected_; }
  // Returns: the links that need progress.
  std::span<transport::Transport* const> active() const noexcept { return active_; }

 private:
  enum LinkKind : uint8_t { kSelf, kShm, kTcp };
  transport::TransportOptions link_options() const;
  std::unique_ptr<transport::Transport> make(LinkKind which) const;
  void open_shared_memory();
  // `machines`: for each rank, the first rank on the same machine, whose cores it shares.
  void set_cores(const std::vector<transport::CpuSet>& cores, const std::vector<int>& machines);

  int rank_, size_;
  transport::Secret job_;
  LinkContextOptions options_;
  // Why this rank has no shared memory; "": it has, or does not use it.
  std::string shared_memory_error_;
  // Why ranks of this host are reached over TCP: the reason of the first such rank.
  std::string tcp_reason_;
  std::unique_ptr<transport::CoreBalancer> core_balancer_;  // must outlive the links
  std::array<std::unique_ptr<transport::Transport>, 3> links_;
  std::vector<transport::Endpoint> endpoints_;  // by rank, of the link that reaches the rank
  std::vector<LinkKind> link_kinds_;            // by rank
  std::vector<int> host_;           // by rank: the first rank with the same host and user
  std::vector<bool> is_connected_;  // by rank
  std::vector<int> connected_;
  // Number of connected_peers() that next_incoming_peer() has read, by link.
  std::array<size_t, 3> polled_opened_{};
  std::vector<transport::Transport*> active_;
  // most_oversubscribed_host_: over all hosts. core_sharers_: the ranks that share a core with this
  // rank, itself included.
  transport::CoreSharing most_oversubscribed_host_, core_sharers_;
  transport::WaitPolicy wait_policy_;
};

}  // namespace torch::comms::ctran
