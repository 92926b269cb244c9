#include "ctran/kernels/find.hpp"
#include "ctran/kernels/message_chunks.cuh"
#include "ctran/kernels/message_tiles.cuh"

// One kernel for all messages. Every block goes through its work in the order of messages, and of
// channels within each; so does the other side, on however many blocks. Of all that is not done,
// the first has both its sides at work: nothing waits for ever.

namespace torch::comms::ctran::kernels {
namespace {

__device__ __forceinline__ const Route& route_of(const ExchangeParams& p) {
  int r = 0;
  while (r + 1 < p.routes_count && p.routes[r + 1].first_block <= static_cast<int>(blockIdx.x)) ++r;
  return p.routes[r];
}

// One of the courier's lanes: reads the number of the launch, and whether there is to be one.
__device__ __forceinline__ void begin_exchange(const ExchangeParams& p, Session& s) {
  const Header& own = header_of(p, p.rank);
  s.launch = load_relaxed(&own.exchanges) + 1;
  s.start_ns = now_ns();
  s.stopped =
      load_relaxed(&own.stop) != 0 || (load_relaxed(&own.mismatched) != 0 && must_stop(p, s, -1));
}

__global__ void __launch_bounds__(kExchangeThreads, 1)
    ExchangeMessages(const __grid_constant__ ExchangeParams p) {
  follow_previous();
  __shared__ Session s;
  __shared__ Standing known;
  const Route route = route_of(p);
  const int block = static_cast<int>(blockIdx.x) - route.first_block;
  const Connection connection(p, s, route, known);
  connection.recall();
  if (threadIdx.x == kExchangeThreads - 1) begin_exchange(p, s);
  __syncthreads();
  // The number may be counted up once all blocks have read it. Nobody waits for this.
  uint32_t ticket = 0;
  if (threadIdx.x == 0) ticket = atomicInc(&header_of(p, p.rank).ticket, gridDim.x - 1);

  bool done = !s.stopped;
  for (int i = route.first; done && i < route.end; ++i)
    for (int channel = block; done && channel < p.parcels[i].channels; channel += route.blocks)
      done = p.parcels[i].lines ? MessageTiles(connection).carry(p.parcels[i], channel)
                                : MessageChunks(connection).carry(p.parcels[i], channel);

  __syncthreads();
  if (done) connection.note(block, route.blocks);
  if (threadIdx.x == 0 && ticket == gridDim.x - 1) header_of(p, p.rank).exchanges = s.launch;
}

}  // namespace

const void* find_exchange() { return reinterpret_cast<const void*>(&ExchangeMessages); }

}  // namespace torch::comms::ctran::kernels
