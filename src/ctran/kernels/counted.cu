#include "ctran/kernels/counted.hpp"
#include "ctran/kernels/exchange.cuh"
#include "ctran/kernels/find.hpp"

// Parts of tensors to and from all ranks, by counts that the kernel reads. Each part is a message:
// its sender tells its size ahead of it, and a receiver that has counted otherwise stops both.
namespace torch::comms::ctran::kernels {
namespace {

// For one thread. All blocks find the same, and leave.
__device__ __noinline__ void refuse_counts(const CountedParams& p, const Session& s) {
  stop(p, s, Stop::kCounts, p.rank);
  for (int peer = 0; peer < p.size; ++peer)
    if (peer != p.rank) report(p, Stop::kCounts, peer);
}

// Blocks `block` of `blocks` copy a part, which begins anywhere.
__device__ __forceinline__ void copy(char* to, const char* from, size_t bytes, size_t block,
                                     size_t blocks) {
  const size_t stride = blocks * kExchangeThreads * 16;
  for (size_t at = (block * kExchangeThreads + threadIdx.x) * 16; at < bytes; at += stride) {
    const size_t left = bytes - at;
    store_bytes(to + at, load_bytes(from + at, from + bytes),
                left < 16 ? static_cast<int>(left) : 16);
  }
}

template <MessageKind kKind>
__global__ void __launch_bounds__(kExchangeThreads, 1)
    ExchangeCounted(const __grid_constant__ CountedParams p) {
  follow_previous();
  __shared__ Session s;
  __shared__ Standing known;
  __shared__ CountedPart input, output;  // of this rank for itself
  const bool copies = static_cast<int>(blockIdx.x) >= p.blocks;
  const Route route = route_of(p);  // where it does not copy
  const Connection connection(p, s, route, known);
  if (!copies) connection.recall();
  if (threadIdx.x == kExchangeThreads - 1) begin_exchange(p, s);
  if (threadIdx.x == 0) input = part_of(p.input, p.size, p.rank);
  if (threadIdx.x == kWarp) output = part_of(p.output, p.size, p.rank);
  __syncthreads();
  const uint32_t ticket = threadIdx.x == 0 ? take_ticket(p) : 0;

  const bool fits = input.fits && output.fits && input.count == output.count;
  if (!s.stopped && !fits && threadIdx.x == 0) refuse_counts(p, s);
  bool done = !s.stopped && fits;
  if (done && copies) {
    copy(p.output.data + output.begin * p.element_bytes,
         p.input.data + input.begin * p.element_bytes, input.count * p.element_bytes,
         static_cast<size_t>(blockIdx.x) - p.blocks, p.copying_blocks);
  } else if (done) {
    const Counted& tensor = route.receives ? p.output : p.input;
    const CountedPart part = part_of(tensor, p.size, route.peer);
    const size_t at = part.begin * p.element_bytes;
    char* const place = p.places[route.peer];
    const Parcel parcel = parcel_of(tensor.data + at, part.count * p.element_bytes,
                                    place != nullptr ? place + at : nullptr, p.asks);
    typename Ahead<kKind>::Ahead nothing{};
    done = carry<kKind>(connection, parcel, 0, nothing);
  }

  __syncthreads();
  if (done && !copies) connection.note(1);
  if (threadIdx.x == 0) end_exchange(p, s, ticket);
}

}  // namespace

const void* find_exchange_counted(MessageKind kind) {
  if (kind == MessageKind::kStraight)
    return reinterpret_cast<const void*>(&ExchangeCounted<MessageKind::kStraight>);
  return reinterpret_cast<const void*>(&ExchangeCounted<MessageKind::kUsual>);
}

}  // namespace torch::comms::ctran::kernels
