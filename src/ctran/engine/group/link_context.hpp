#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "ctran/engine/plan/algorithm_chooser.hpp"
#include "transport/connect/endpoint.hpp"
#include "transport/waiting/cpu_set.hpp"

namespace torch::comms::transport {
class PeerConnection;
}

namespace torch::comms::ctran {

class Engine;

// Which links reach the peers. This rank itself is always reached in memory.
enum class LinkPolicy : uint8_t {
  kAuto,  // shared memory between ranks of one host and one user that both have it, else TCP
  kShm,   // shared memory only: create() fails if a peer cannot be reached over it
  kTcp,
};

struct LinkContextOptions {
  LinkPolicy links = LinkPolicy::kAuto;
  std::string interface = {};  // of TCP: name or address; "": chosen automatically
  // Ranks of one machine with different values are treated as on different hosts. "": the machine
  // is the host.
  std::string host = {};
  // Large messages between processes of this host are copied once instead of twice, if the system
  // allows it and it is faster.
  bool single_copy = true;
  // Waiting threads move to cores with fewer ranks; see transport::CoreBalancer.
  bool move_threads = true;
  // Contexts of up to this many ranks connect all ranks at once; the death of any peer is then
  // noticed even while this rank is idle. In larger contexts a peer is connected on first use.
  // Equal on all ranks, because it determines which ranks their monitors ask directly.
  int eager_connect_ranks = 16;
  AlgorithmChooser chooser = choose_by_size;
  // Before a group fails, how long a rank waits for the progress of all others, or for what they
  // have called after a mismatch. Ranks that have not answered by then are reported as silent.
  std::chrono::milliseconds query_timeout{500};
  // Called about 20 times a second by a thread that waits in EngineGroup::run(),
  // EngineGroup::split() or EngineWork::wait(), without a lock. An exception from it ends the wait,
  // for Ctrl-C: the call itself continues and still uses its memory; an interrupted split fails the
  // group.
  std::function<void()> interrupt_check = nullptr;
  // Wraps every connection, for tests: transport::inject_faults.
  std::function<std::unique_ptr<transport::PeerConnection>(
      int peer, std::unique_ptr<transport::PeerConnection>)>
      wrap = nullptr;
};

// Sends this rank's blob, a few hundred bytes, to all ranks and returns the blobs of all ranks, by
// rank. May block and throw.
using AllGatherBlobs = std::function<std::vector<std::string>(std::string mine)>;

// The links of this process to the ranks of one rendezvous, and the state that communicators over
// these links share. It includes the progress thread, which moves asynchronous work while no caller
// waits.
//
// Threads: any.
// Lifetime: it lives as long as a group of it or the caller's pointer. Its destructor closes the
// links and never hangs; it must not run in a CompletionListener.
// Forked children: every call raises kForked; destruction does not touch the parent's state.
class TC_API LinkContext {
 public:
  // Connects the ranks. Collective over all ranks, as `exchange` is. Returns before peers have
  // answered.
  // Throws: CommError, and what `exchange` throws. kInvalidArgument: rank, size or interface.
  // kMismatch: a blob of another job or version. kUnsupported: LinkPolicy::kShm across hosts or
  // users. kResourceExhausted: with LinkPolicy::kShm on all ranks if one rank has no shared memory.
  static std::shared_ptr<LinkContext> create(int rank, int size, const transport::Secret& job,
                                             const AllGatherBlobs& exchange,
                                             const LinkContextOptions& options = {});
  ~LinkContext();

  int rank() const noexcept;
  int size() const noexcept;
  // Returns: "self", "shm" or "tcp".
  std::string_view link_name(int rank) const noexcept;
  // Returns: whether two ranks have the same host and user. Such ranks share memory unless
  // describe_links() says otherwise.
  bool is_same_host(int a, int b) const noexcept;
  // Returns: ranks and cores of the host with the most ranks per core; the same on all ranks.
  const transport::CoreSharing& most_oversubscribed_host() const noexcept;
  // Close the links at once without a message, like the end of the process: peers see this rank
  // fail. The calls of all groups fail with `why`, or with kFinalized in shut_down(). Must not be
  // called from a CompletionListener.
  void shut_down() noexcept;
  void break_off(const CommError& why) noexcept;
  // Returns: the links of this context ("shm to 3 peers; tcp to 4 peers (...)"), and in parentheses
  // what a link cannot do here or why it was chosen.
  std::string describe_links() const;
  // Returns: how this rank waits, and how many ranks share its cores: "yield first (4 ranks on 2
  // cores)".
  std::string describe_waiting() const;

 private:
  friend class EngineGroup;
  explicit LinkContext(std::shared_ptr<Engine> engine);
  std::shared_ptr<Engine> engine_;  // also kept by the handles of completed calls
};

}  // namespace torch::comms::ctran
