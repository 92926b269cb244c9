#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/protocol/kernel_main.cuh"

namespace torch::comms::ctran::kernels {

TC_ONE_SHOT(AllGatherOneShot)
TC_KERNEL_OF(AllGatherOneShot)
TC_ONE_SHOT(AllToAllOneShot)
TC_KERNEL_OF(AllToAllOneShot)
TC_ONE_SHOT(BroadcastOneShot)
TC_KERNEL_OF(BroadcastOneShot)
TC_TWO_SHOT(BroadcastTwoShot)
TC_KERNEL_OF(BroadcastTwoShot)
TC_ONE_SHOT(GatherOneShot)
TC_KERNEL_OF(GatherOneShot)
TC_ONE_SHOT(ScatterOneShot)
TC_KERNEL_OF(ScatterOneShot)

namespace {

// The work of a barrier is empty: begin() has waited for all ranks.
struct EmptyWork {
  __device__ EmptyWork(const CollectiveParams&, const LaunchContext&) {}
  __device__ __forceinline__ bool run() { return true; }
};
__global__ void BarrierAll(const __grid_constant__ CollectiveParams p) { run<EmptyWork, true>(p); }

template <template <class, class, int> class Of>
const void* find(KernelShape shape, int ranks) {
  if (shape.protocol == PacketProtocol::kLL128)
    return shape.is_lean ? for_ranks<Of, Lean<LL128Protocol>, Move>(ranks)
                         : for_ranks<Of, LL128Protocol, Move>(ranks);
  if (shape.protocol != PacketProtocol::kLongLL128) return nullptr;
  // Only teams of two ranks use long LL128.
  return shape.is_lean ? Of<Lean<LongLL128Protocol>, Move, 2>::kernel()
                       : Of<LongLL128Protocol, Move, 2>::kernel();
}
template <template <class, class, int> class Of>
const void* find_one_shot(KernelShape shape, int ranks) {
  if (shape.protocol != PacketProtocol::kLL) return find<Of>(shape, ranks);
  return shape.is_lean ? for_ranks<Of, Lean<LLProtocol>, Move>(ranks)
                       : for_ranks<Of, LLProtocol, Move>(ranks);
}

}  // namespace

const void* find_move(Collective collective, KernelShape shape, int ranks) {
  if (collective == Collective::kBarrier) return reinterpret_cast<const void*>(&BarrierAll);
  if (shape.two_hops)
    return collective == Collective::kBroadcast ? find<BroadcastTwoShotOf>(shape, ranks) : nullptr;
  switch (collective) {
    case Collective::kAllGather:
      return find_one_shot<AllGatherOneShotOf>(shape, ranks);
    case Collective::kAllToAll:
      return find_one_shot<AllToAllOneShotOf>(shape, ranks);
    case Collective::kBroadcast:
      return find_one_shot<BroadcastOneShotOf>(shape, ranks);
    case Collective::kGather:
      return find_one_shot<GatherOneShotOf>(shape, ranks);
    case Collective::kScatter:
      return find_one_shot<ScatterOneShotOf>(shape, ranks);
    default:
      return nullptr;
  }
}

}  // namespace torch::comms::ctran::kernels
