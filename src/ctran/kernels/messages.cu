#include "ctran/kernels/exchange.cuh"
#include "ctran/kernels/find.hpp"

// One kernel for all messages that the host knows.
namespace torch::comms::ctran::kernels {
namespace {

template <bool kStraight>
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
  const uint32_t ticket = threadIdx.x == 0 ? take_ticket(p) : 0;

  bool done = !s.stopped;
  for (int i = route.first; done && i < route.end; ++i)
    done = carry<kStraight>(connection, p.parcels[i], i - route.first, block, route.blocks);

  __syncthreads();
  if (done) connection.note(block, route.blocks, route.end - route.first);
  if (threadIdx.x == 0) end_exchange(p, s, ticket);
}

}  // namespace

const void* find_exchange(bool straight) {
  return straight ? reinterpret_cast<const void*>(&ExchangeMessages<true>)
                  : reinterpret_cast<const void*>(&ExchangeMessages<false>);
}

}  // namespace torch::comms::ctran::kernels
