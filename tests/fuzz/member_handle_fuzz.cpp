// The init handle of a member, as another process may have written it.

#include <torchcomms/base/error.hpp>

#include "core/rendezvous/init_handle.hpp"
#include "fuzz.hpp"

using torch::comms::parse_init_handle;
using torch::comms::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = torch::comms::fuzz::text_of(data, size);
  try {
    const auto handle = parse_init_handle(text, "gloo");
    require(handle.backend == "gloo" && handle.rank >= -1);
    require(handle.port >= -1 && handle.port <= UINT16_MAX);
    const auto again = parse_init_handle(handle.to_text(), "gloo");
    require(again.to_text() == handle.to_text() && again.identity == handle.identity);
    require(!is_ordered_before(handle, again) && !is_ordered_before(again, handle));
  } catch (const torch::comms::CommError& error) {
    require(!error.why().empty() && error.why().size() < 256);
  }
  return 0;
}
