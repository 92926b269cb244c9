#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/messages/device_counts.hpp"
#include "ctran/kernels/messages/exchange.cuh"

// All-to-all by counts that the kernel reads. Each part is a message: its sender sends its size
// ahead of it, and a receiver with another count stops both sides.
namespace torch::comms::ctran::kernels {
namespace {

// Stops this rank and its peers. For one thread; all blocks find the same and end.
__device__ __noinline__ void refuse_counts(const AllToAllVDynamicParams& p,
                                           const LaunchContext& s) {
  stop(p, s, StopReason::kInvalidCounts, p.rank);
  for (int peer = 0; peer < p.size; ++peer)
    if (peer != p.rank) report(p, StopReason::kInvalidCounts, peer);
}

// Copies a part at any alignment, as block `block` of `blocks`.
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
    ExchangeCounted(const __grid_constant__ AllToAllVDynamicParams p) {
  follow_previous();
  __shared__ LaunchContext s;
  __shared__ BlockState state;
  __shared__ DeviceCountedPart input, output;  // of this rank for itself
  const bool copies = static_cast<int>(blockIdx.x) >= p.blocks;
  const MessageRoute route = route_of(p);  // unused if the block copies
  const Connection connection(p, s, route, state);
  if (!copies) connection.load_counters();
  if (threadIdx.x == kExchangeThreads - 1) begin_exchange(p, s);
  if (threadIdx.x == 0) input = part_of(p.input, p.size, p.rank);
  if (threadIdx.x == kWarp) output = part_of(p.output, p.size, p.rank);
  __syncthreads();
  const uint32_t ticket = threadIdx.x == 0 ? take_ticket(p) : 0;

  const bool fits = input.is_possible && output.is_possible && input.count == output.count;
  if (!s.stopped && !fits && threadIdx.x == 0) refuse_counts(p, s);
  bool done = !s.stopped && fits;
  if (done && copies) {
    copy(p.output.data + output.begin * p.element_bytes,
         p.input.data + input.begin * p.element_bytes, input.count * p.element_bytes,
         static_cast<size_t>(blockIdx.x) - p.blocks, p.local_copy_blocks);
  } else if (done) {
    const DeviceCountedBuffer& tensor = route.is_receive ? p.output : p.input;
    const DeviceCountedPart part = part_of(tensor, p.size, route.peer);
    const size_t at = part.begin * p.element_bytes;
    char* const zero_copy_target = p.zero_copy_targets[route.peer];
    const MessageTransfer msg = transfer_of(
        tensor.data + at, part.count * p.element_bytes,
        zero_copy_target != nullptr ? zero_copy_target + at : nullptr, p.requests_zero_copy);
    typename PrefetchSource<kKind>::Prefetched nothing{};
    done = transfer<kKind>(connection, msg, 0, nothing);
  }

  __syncthreads();
  if (done && !copies) connection.store_counters(1);
  if (threadIdx.x == 0) end_exchange(p, s, ticket);
}

}  // namespace

const void* find_all_to_all_v_dynamic(MessageKind kind) {
  if (kind == MessageKind::kZeroCopy)
    return reinterpret_cast<const void*>(&ExchangeCounted<MessageKind::kZeroCopy>);
  return reinterpret_cast<const void*>(&ExchangeCounted<MessageKind::kDefault>);
}

}  // namespace torch::comms::ctran::kernels
