#include "transport/tcp/tcp_transport.hpp"

#include "transport/conformance_streams.hpp"
#include "transport/conformance_windows.hpp"

namespace torch::comms::transport::test {
namespace {

Link tcp(const char* name, const char* interface, unsigned sockets, uint32_t chunk_bytes) {
  return {name, 3, [=](const TransportOptions& options) {
            tcp::TcpOptions all{options};
            all.interface = interface;
            all.sockets = sockets;
            all.chunk_bytes = chunk_bytes;
            return make_tcp_transport(all);
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance,
                         testing::Values(tcp("as_it_is", "127.0.0.1", 3, 256 * 1024),
                                         tcp("one_socket_small_chunks", "127.0.0.1", 1, 4096)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace torch::comms::transport::test
