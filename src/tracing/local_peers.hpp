#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::tracing {

struct CommRow;
struct RingHeader;

// What another rank has recorded of a communicator, at the time of reading. All ranks number
// collectives the same.
struct PeerRecord {
  int rank = -1;
  int64_t pid = 0;
  bool has_process_exited = false;
  bool is_finalized = false;  // the peer has finalized the communicator
  // Newer communicators have replaced this one in the peer's ring: the other fields are
  // meaningless.
  bool is_overwritten = false;
  uint64_t last_started = 0;  // number of the last collective that the peer called
};

// Reads the ring files of a communicator's ranks on this host: their progress, and whether their
// processes live. It costs the peers nothing and needs no reply. Ranks of other hosts or users, or
// without a file, are not visible. This process itself needs no file.
//
// Threads: one at a time.
class TC_API LocalPeerReader {
 public:
  // `since_ns`: a time before any rank of the communicator was connected (see now_ns()). It
  // excludes older communicators of the same name. `identity`: as CommunicatorInfo::identity; with
  // 0, rows match by name, rank and members.
  LocalPeerReader(std::string name, int rank, int size, uint64_t since_ns, uint64_t identity = 0);
  ~LocalPeerReader();
  LocalPeerReader(const LocalPeerReader&) = delete;
  LocalPeerReader& operator=(const LocalPeerReader&) = delete;

  // Returns the visible peers, by rank. Also searches for files of ranks not seen yet.
  std::vector<PeerRecord> read();
  // Returns a text: which ranks have not called the collective that this process waits in, and
  // which have exited; "" if nothing is known.
  std::string format_status();
  // Returns the first visible peer whose process has exited without finalizing the communicator;
  // rank -1: none. Costs a system call per visible rank; searches for other ranks at most once a
  // second.
  PeerRecord first_exited();

 private:
  struct PeerRingFile;
  struct PeerRow;
  const CommRow* find(const RingHeader& header, int rank, const CommRow* own = nullptr) const;
  void search();

  const std::string name_;
  const int rank_, size_;
  const uint64_t since_ns_, identity_;
  uint64_t searched_ns_ = 0;
  std::map<int, PeerRow> peers_;  // by rank
};

}  // namespace torch::comms::tracing
