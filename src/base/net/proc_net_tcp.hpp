#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// An established connection, as /proc/net/tcp has it [proc_pid_net(5)].
struct ProcNetTcpEntry {
  uint16_t local_port, remote_port;
  uint64_t inode;  // of its socket
};
// Those of the text; lines that are no such connection are left out.
TC_API std::vector<ProcNetTcpEntry> parse_proc_net_tcp(std::string_view text);

// How many of `all` reach `port` here from elsewhere. `own`: inodes of this process's sockets,
// whose connections with itself do not count.
TC_API int count_remote_peers(const std::vector<ProcNetTcpEntry>& all, uint16_t port,
                              const std::set<uint64_t>& own);

// How many connections other processes, of any host, have to `port` of this process. 0 where the
// system does not say. Takes time with the number of connections and descriptors.
TC_API int count_remote_connections(uint16_t port);

}  // namespace torch::comms::base
