// The init handle of a member, as another process may have written it.

#include <torchcomms/base/error.hpp>

#include "core/member_handle.hpp"
#include "fuzz.hpp"

using torch::comms::parse_member_handle;
using torch::comms::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = torch::comms::fuzz::text_of(data, size);
  try {
    const auto handle = parse_member_handle(text, "gloo");
    require(handle.backend == "gloo" && handle.rank >= -1);
    require(handle.port >= -1 && handle.port <= UINT16_MAX);
    const auto again = parse_member_handle(handle.text(), "gloo");
    require(again.text() == handle.text() && again.identity == handle.identity);
    require(!comes_before(handle, again) && !comes_before(again, handle));
  } catch (const torch::comms::CommError& error) {
    require(!error.why().empty() && error.why().size() < 256);
  }
  return 0;
}
