#include "ctran/kernels/exchange.cuh"
#include "ctran/kernels/find.hpp"

// One kernel for all messages that the host knows.
namespace torch::comms::ctran::kernels {
namespace {

template <MessageKind kKind>
__global__ void __launch_bounds__(kExchangeThreads, 1)
    ExchangeMessages(const __grid_constant__ ExchangeParams p) {
  follow_previous();
  __shared__ Session s;
  __shared__ Standing known;
  const Route route = route_of(p);
  const Connection connection(p, s, route, known);
  auto ahead = Ahead<kKind>::look_ahead(p.parcels[route.first], route, connection.block);
  connection.recall();
  if (threadIdx.x == blockDim.x - 1) begin_exchange(p, s);
  __syncthreads();
  const uint32_t ticket = threadIdx.x == 0 ? take_ticket(p) : 0;

  bool done = !s.stopped;
  for (int i = route.first; done && i < route.end; ++i)
    done = carry<kKind>(connection, p.parcels[i], i - route.first, ahead);

  __syncthreads();
  if (done) connection.note(route.end - route.first);
  if (threadIdx.x == 0) end_exchange(p, s, ticket);
}

}  // namespace

const void* find_exchange(MessageKind kind) {
  switch (kind) {
    case MessageKind::kLean:
      return reinterpret_cast<const void*>(&ExchangeMessages<MessageKind::kLean>);
    case MessageKind::kUsual:
      return reinterpret_cast<const void*>(&ExchangeMessages<MessageKind::kUsual>);
    case MessageKind::kStraight:
      return reinterpret_cast<const void*>(&ExchangeMessages<MessageKind::kStraight>);
  }
  return nullptr;
}

}  // namespace torch::comms::ctran::kernels
