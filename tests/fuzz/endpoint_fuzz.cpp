// What ranks publish about themselves: endpoints, handles of memory, and the first bytes on a
// socket.

#include "fuzz.hpp"
#include "transport/memory.hpp"
#include "transport/tcp/tcp_handshake.hpp"

namespace tct = torch::comms::transport;
using torch::comms::CommError;
using torch::comms::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = torch::comms::fuzz::text_of(data, size);
  const tct::Secret job = {};
  try {
    const auto endpoint = tct::parse_endpoint(text, job);
    require(text.size() <= tct::kMaxEndpointBytes);
    require(tct::parse_endpoint(tct::serialize(endpoint, job), job) == endpoint);
  } catch (const CommError&) {  // says what is wrong
  }
  try {
    const auto handle = tct::parse_memory_handle(text);
    require(text.size() == tct::kMemoryHandleBytes);
    require(tct::parse_memory_handle(tct::serialize(handle)) == handle);
  } catch (const CommError&) {
  }
  torch::comms::fuzz::Input input(data, size);
  const auto hello = input.take<tct::tcp::TcpHello>();
  const tct::tcp::TcpEndpointId door{.rank = 3, .instance = 1, .job = job};
  if (tct::tcp::why_not(hello, door) == nullptr)
    require(hello.channel < hello.channels && hello.channels <= tct::tcp::kMaxChannels &&
            hello.to == 3);
  return 0;
}
