#include "ctran/kernels/counted.hpp"

#include <algorithm>

namespace torch::comms::ctran::kernels {

CountedParams params_of(const Team& team, const CountedExchange& exchange, int most_blocks) {
  CountedParams p{};
  static_cast<Postal&>(p) = postal_of(team, Collective::kCountedExchange, exchange.limit_ns);
  p.input = {static_cast<char*>(const_cast<void*>(exchange.input)), exchange.input_counts,
             exchange.input_elements};
  p.output = {static_cast<char*>(exchange.output), exchange.output_counts,
              exchange.output_elements};
  p.element_bytes = exchange.element_bytes;
  p.asks = exchange.asks;
  std::transform(exchange.places, exchange.places + team.size, p.places,
                 [](void* at) { return static_cast<char*>(at); });
  if (p.asks ||
      std::any_of(p.places, p.places + team.size, [](const char* at) { return at != nullptr; }))
    p.kind = MessageKind::kStraight;
  const auto channels_of = [&](const Counted& tensor) {  // at most, of any part of it
    return static_cast<uint8_t>(manner_of(tensor.elements * exchange.element_bytes).channels);
  };
  for (const bool receives : {false, true})
    for (int peer = 0; peer < team.size; ++peer) {
      if (peer == team.rank) continue;
      Route& route = p.routes[p.routes_count++];
      route.peer = static_cast<int16_t>(peer);
      route.receives = receives;
      route.channels = channels_of(receives ? p.output : p.input);
    }
  // The copy is one more route, of a GPU's own memory.
  const int copying = std::max(1, most_blocks / (p.routes_count + 1));
  share_blocks(p, exchange.blocks, most_blocks - copying);
  p.copying_blocks = std::min<int>(copying, channels_of(p.output));
  if (exchange.blocks != 0) p.copying_blocks = std::min(p.copying_blocks, exchange.blocks);
  return p;
}

}  // namespace torch::comms::ctran::kernels
