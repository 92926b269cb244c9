#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// An established TCP connection as listed in /proc/net/tcp [proc_pid_net(5)].
struct ProcNetTcpEntry {
  uint16_t local_port, remote_port;
  uint64_t inode;  // inode of the socket
};
// Returns the established connections in `text`; other lines are left out.
TC_API std::vector<ProcNetTcpEntry> parse_proc_net_tcp(std::string_view text);

// Returns how many connections in `all` have `port` as their local port and a peer outside this
// process. `own`: inodes of this process's sockets, whose connections to the process itself do not
// count.
TC_API int count_remote_peers(const std::vector<ProcNetTcpEntry>& all, uint16_t port,
                              const std::set<uint64_t>& own);

// Returns how many connections other processes, on any host, have to `port` of this process; 0 if
// /proc cannot be read.
// Blocks: for a time that grows with the number of connections and descriptors.
TC_API int count_remote_connections(uint16_t port);

}  // namespace torch::comms::base
