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

// Which link reaches which rank, and the links. Threads: one at a time, as transports.
class LinkTable {
 public:
  // Opens the links that may be needed. Throws as LinkContext::create().
  LinkTable(int rank, int size, const transport::Secret& job, const LinkContextOptions& options);

  // What peers must know of this rank, and what they told, by rank. Drops the links that nobody is
  // reached over.
  std::string serialize_address() const;
  void set_addresses(const std::vector<std::string>& blobs);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_same_host(int a, int b) const noexcept;
  std::string_view link_name(int peer) const noexcept;
  // As LinkContext::describe_links().
  std::string describe_links() const;
  // The host with the most ranks to a core: the same on all ranks.
  const transport::CoreSharing& most_oversubscribed_host() const noexcept {
    return most_oversubscribed_host_;
  }
  // How a wait passes its time, by how many ranks share the cores that this one may run on.
  const transport::WaitPolicy& wait_policy() const noexcept { return wait_policy_; }
  std::string describe_waiting() const;

  // Closes the links; nothing is connected any more.
  void close() noexcept;
  // The link to a rank, connected on first use; true in `fresh` then. Throws CommError where the
  // peer cannot be reached for want of descriptors and the like.
  transport::Transport& link_to(int peer, bool* fresh = nullptr);
  bool is_connected(int peer) const noexcept { return is_connected_[static_cast<size_t>(peer)]; }
  // Why a connected one is not to be reached any more, else nullptr.
  const transport::PeerFailure* failure(int peer) const noexcept;
  // The next rank that has connected by itself, and is not connected from here; -1: none.
  int next_incoming_peer() noexcept;
  // Ranks that are connected, but for this one.
  std::span<const int> connected() const noexcept { return connected_; }
  // Those that need progress.
  std::span<transport::Transport* const> active() const noexcept { return active_; }

 private:
  enum LinkKind : uint8_t { kSelf, kShm, kTcp };
  transport::TransportOptions link_options() const;
  std::unique_ptr<transport::Transport> make(LinkKind which) const;
  void open_shared_memory();
  // `machines`: by rank, the first rank whose cores are of the same machine.
  void set_cores(const std::vector<transport::CpuSet>& cores, const std::vector<int>& machines);

  int rank_, size_;
  transport::Secret job_;
  LinkContextOptions options_;
  std::string
      shared_memory_error_;  // why this rank has no shared memory; "": it has, or wants none
  std::string tcp_reason_;   // why ranks of this host are reached over TCP, of the first one
  std::unique_ptr<transport::CoreBalancer> seating_;  // outlives the links
  std::array<std::unique_ptr<transport::Transport>, 3> links_;
  std::vector<transport::Endpoint> endpoints_;  // by rank, of the link that reaches it
  std::vector<LinkKind> link_kinds_;            // by rank
  std::vector<int> host_;                       // by rank: the first rank that it may share with
  std::vector<bool> is_connected_;              // by rank
  std::vector<int> connected_;
  std::array<size_t, 3> polled_opened_{};  // of connected_peers(), by link
  std::vector<transport::Transport*> active_;
  transport::CoreSharing most_oversubscribed_host_,
      core_sharers_;  // of all hosts; this rank and who shares a core with it
  transport::WaitPolicy wait_policy_;
};

}  // namespace torch::comms::ctran
