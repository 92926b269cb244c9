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

// Which links peers are reached over. This rank itself is always reached in memory.
enum class LinkPolicy : uint8_t {
  kAuto,  // shared memory where host and user are the same and both ranks have it, TCP elsewhere
  kShm,   // shared memory alone: a peer that cannot be reached so is refused
  kTcp,
};

struct LinkContextOptions {
  LinkPolicy links = LinkPolicy::kAuto;
  std::string interface = {};  // of TCP: name or address; "": chosen
  // Ranks of one machine that say different names are treated as on different hosts; "": the
  // machine is the host.
  std::string host = {};
  // Large messages between processes of this host are copied once, where the system allows it and
  // that takes less.
  bool single_copy = true;
  // Ranks that wait move to cores with fewer of them: transport::Seating.
  bool move_threads = true;
  // Up to so many ranks, all connect at once: then the death of any is seen while idle, too. In
  // larger families a peer is connected on first use.
  int eager_connect_ranks = 16;
  AlgorithmChooser chooser = choose_by_size;
  // When ranks disagree about an operation, how long each waits to hear what all of them called;
  // and before a group fails, where all of them are. Those that have not answered by then are named
  // as silent.
  std::chrono::milliseconds query_timeout{500};
  // Called about 20 times a second on a thread that waits in EngineGroup::run(),
  // EngineGroup::next_split() or Work::poll_once(), without a lock. What it throws leaves the wait:
  // a call goes on by itself, and uses its memory; an interrupted split ends the group. For Ctrl-C.
  std::function<void()> interrupt_check = nullptr;
  // Around every channel, for tests: transport::inject_faults.
  std::function<std::unique_ptr<transport::PeerConnection>(
      int peer, std::unique_ptr<transport::PeerConnection>)>
      wrap = nullptr;
};

// Hands this rank's blob, a few hundred bytes, to all ranks and returns theirs, by rank. May block
// and throw.
using AllGatherBlobs = std::function<std::vector<std::string>(std::string mine)>;

// What one rendezvous connected: the links of this process to the ranks of a job, the thread that
// moves asynchronous work while nobody waits, and what is shared by the communicators over them.
//
// Threads: any. Lives as long as a group of it or the caller's pointer; its end closes the links,
// never hangs, and must not come from a CompletionListener.
// Forked children: everything raises kForked; destruction touches nothing of the parent's.
class TC_API LinkContext {
 public:
  // Collective over all ranks, as `exchange` is. Returns before peers have answered. Throws
  // CommError: kInvalidArgument (rank, size, interface), kSizeMismatch (a blob of another job or
  // version), kUnsupported (LinkPolicy::kShm across hosts or users), kResourceExhausted (with
  // Links::kShm on all ranks where one has no shared memory); and what `exchange` throws.
  static std::shared_ptr<LinkContext> create(int rank, int size, const transport::Secret& job,
                                             const AllGatherBlobs& exchange,
                                             const LinkContextOptions& options = {});
  ~LinkContext();

  int rank() const noexcept;
  int size() const noexcept;
  // "self", "shm" or "tcp".
  std::string_view link_name(int rank) const noexcept;
  // Equal for ranks of one host and one user, which share memory unless describe_links() says
  // otherwise.
  bool is_same_host(int a, int b) const noexcept;
  // The host with the most ranks to a core: the same on all ranks.
  const transport::CoreSharing& most_oversubscribed_host() const noexcept;
  // Closes the links at once and tells nobody, as the end of the process would: peers see this rank
  // fail. The calls of all groups end with that error, kFinalized where none is given. Not from a
  // Listener.
  void shut_down() noexcept;
  void break_off(const CommError& why) noexcept;
  // "shm to 3 peers; tcp to 4 peers (...)": what carries this family, and what a link cannot do
  // here or why it goes the way it does.
  std::string describe_links() const;
  // "yield first (4 ranks on 2 cores)": how this rank waits, and who shares its cores.
  std::string describe_waiting() const;

 private:
  friend class EngineGroup;
  explicit LinkContext(std::shared_ptr<Engine> engine);
  std::shared_ptr<Engine> engine_;  // calls that have ended keep it, too
};

}  // namespace torch::comms::ctran
