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

// What another rank of a communicator has recorded of it, at the moment of looking. Collectives are
// numbered alike on all ranks.
struct PeerRecord {
  int rank = -1;
  int64_t pid = 0;
  bool has_process_exited = false;
  bool is_finalized = false;  // it has finalized the communicator
  // Newer communicators have pushed this one out of its record: what is here says nothing.
  bool is_overwritten = false;
  uint64_t last_started = 0;  // number of the last collective that it called
};

// The ranks of a communicator whose processes are on this host, by their ring files: where they
// are, and whether they still live. Costs them nothing, and needs no answer of theirs. Ranks of
// other hosts or users, or without a file, are never seen. This process itself needs no file.
//
// One thread at a time.
class TC_API LocalPeerReader {
 public:
  // `since_ns`: no rank of it was connected before (see now_ns()), so that an older one of that
  // name is told apart. `identity`: as CommunicatorInfo's; with 0 a
  // name, a place and the members are what one is known by.
  LocalPeerReader(std::string name, int rank, int size, uint64_t since_ns, uint64_t identity = 0);
  ~LocalPeerReader();
  LocalPeerReader(const LocalPeerReader&) = delete;
  LocalPeerReader& operator=(const LocalPeerReader&) = delete;

  // Those that can be seen, by rank. Looks for files of ranks not seen yet.
  std::vector<PeerRecord> read();
  // Who has not called the collective that this process waits in, and who is gone; "" where nothing
  // is known.
  std::string format_status();
  // The first one seen whose process has ended without finalizing the communicator; a rank of -1:
  // none. A system call for each rank that is known; looks for others once a second at most.
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
