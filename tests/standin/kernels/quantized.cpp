#include "standin/kernels/quantized.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "ctran/kernels/collectives/stochastic_rounding.hpp"

namespace torch::comms::standin {
namespace {

constexpr size_t kChunkElements = kChunkBytes / sizeof(uint16_t);
static_assert(kChunkElements % kernels::kDraws == 0);

}  // namespace

void run(Launch& launch, const kernels::QuantizedReduceScatter& call) {
  const int rank = launch.rank(), size = launch.size();
  const size_t count = call.count;
  std::vector<uint16_t> outgoing(kChunkElements);
  for (size_t at = 0; at == 0 || at < count; at += kChunkElements) {
    const size_t now = std::min(kChunkElements, count - at);
    for (int step = 1; step < size; ++step) {
      const int peer = (rank + step) % size;
      const float* const part = call.input + static_cast<size_t>(peer) * count;
      kernels::PhiloxWords draws{};
      for (size_t i = 0; i < now; ++i) {
        const size_t element = at + i;
        const auto place = static_cast<int>(element % kernels::kDraws);
        if (place == 0)
          draws = kernels::draws_of(*call.seed, rank, peer, element / kernels::kDraws);
        outgoing[i] = kernels::round_stochastically(part[element], kernels::draw_of(draws, place));
      }
      launch.send(peer, outgoing.data(), now * sizeof(uint16_t));
    }
    bool has_all = launch.goes_on();
    std::vector<const uint16_t*> incoming(static_cast<size_t>(size));
    for (int peer = 0; peer < size && has_all; ++peer) {
      if (peer == rank) continue;
      const auto* const data = launch.receive(peer);
      incoming[static_cast<size_t>(peer)] = reinterpret_cast<const uint16_t*>(data);
      has_all = data != nullptr;
    }
    if (!has_all) {
      std::fill_n(call.output, count, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    const float* const own = call.input + static_cast<size_t>(rank) * count + at;
    for (size_t i = 0; i < now; ++i) {
      float sum = 0;
      for (int peer = 0; peer < size; ++peer) {
        const float value = peer == rank
                                ? own[i]
                                : kernels::BFloat16::decode(incoming[static_cast<size_t>(peer)][i]);
        sum = peer == 0 ? value : sum + value;
      }
      call.output[at + i] = call.is_average ? sum / static_cast<float>(size) : sum;
    }
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank) launch.taken(peer);
  }
}

}  // namespace torch::comms::standin
