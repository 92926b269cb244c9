#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/messages/exchange.cuh"

// The kernel of messages whose sizes the host knows.
namespace torch::comms::ctran::kernels {
namespace {

template <MessageKind kKind>
__global__ void __launch_bounds__(kExchangeThreads, 1)
    ExchangeMessages(const __grid_constant__ ExchangeParams p) {
  follow_previous();
  __shared__ LaunchContext s;
  __shared__ BlockState state;
  const MessageRoute route = route_of(p);
  const Connection connection(p, s, route, state);
  auto ahead = PrefetchSource<kKind>::prefetch(p.transfers[route.first], route, connection.block);
  connection.load_counters();
  if (threadIdx.x == blockDim.x - 1) begin_exchange(p, s);
  __syncthreads();
  const uint32_t ticket = threadIdx.x == 0 ? take_ticket(p) : 0;

  bool done = !s.stopped;
  for (int i = route.first; done && i < route.end; ++i)
    done = transfer<kKind>(connection, p.transfers[i], i - route.first, ahead);

  __syncthreads();
  if (done) connection.store_counters(route.end - route.first);
  if (threadIdx.x == 0) end_exchange(p, s, ticket);
}

}  // namespace

const void* find_exchange(MessageKind kind) {
  switch (kind) {
    case MessageKind::kLean:
      return reinterpret_cast<const void*>(&ExchangeMessages<MessageKind::kLean>);
    case MessageKind::kDefault:
      return reinterpret_cast<const void*>(&ExchangeMessages<MessageKind::kDefault>);
    case MessageKind::kZeroCopy:
      return reinterpret_cast<const void*>(&ExchangeMessages<MessageKind::kZeroCopy>);
  }
  return nullptr;
}

}  // namespace torch::comms::ctran::kernels
