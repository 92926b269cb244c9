#include "ctran/kernels/messages/device_counts.hpp"

#include <algorithm>

namespace torch::comms::ctran::kernels {

AllToAllVDynamicParams params_of(const TeamDescriptor& team, const AllToAllVDynamic& exchange,
                                 int most_blocks) {
  AllToAllVDynamicParams p{};
  static_cast<MessageParams&>(p) =
      message_params_of(team, Collective::kAllToAllVDynamic, exchange.timeout_ns);
  p.input = {static_cast<char*>(const_cast<void*>(exchange.input)), exchange.input_counts,
             exchange.input_elements};
  p.output = {static_cast<char*>(exchange.output), exchange.output_counts,
              exchange.output_elements};
  p.element_bytes = exchange.element_bytes;
  p.requests_zero_copy = exchange.requests_zero_copy;
  std::transform(exchange.zero_copy_targets, exchange.zero_copy_targets + team.size,
                 p.zero_copy_targets, [](void* at) { return static_cast<char*>(at); });
  if (p.requests_zero_copy || std::any_of(p.zero_copy_targets, p.zero_copy_targets + team.size,
                                          [](const char* at) { return at != nullptr; }))
    p.kind = MessageKind::kZeroCopy;
  const auto channels_of = [&](const DeviceCountedBuffer& tensor) {  // at most, of any part of it
    return static_cast<uint8_t>(protocol_of(tensor.elements * exchange.element_bytes).channels);
  };
  for (const bool receives : {false, true})
    for (int peer = 0; peer < team.size; ++peer) {
      if (peer == team.rank) continue;
      MessageRoute& route = p.routes[p.routes_count++];
      route.peer = static_cast<int16_t>(peer);
      route.is_receive = receives;
      route.channels = channels_of(receives ? p.output : p.input);
    }
  // The copy counts as one more route, within the GPU's own memory.
  const int copying = std::max(1, most_blocks / (p.routes_count + 1));
  assign_blocks(p, exchange.blocks, most_blocks - copying);
  p.local_copy_blocks = std::min<int>(copying, channels_of(p.output));
  if (exchange.blocks != 0) p.local_copy_blocks = std::min(p.local_copy_blocks, exchange.blocks);
  return p;
}

}  // namespace torch::comms::ctran::kernels
