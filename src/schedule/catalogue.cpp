#include "schedule/catalogue.hpp"

namespace torch::comms::schedule {

std::span<const Algorithm* const> algorithms() noexcept {
  static constexpr const Algorithm* kAll[] = {
      &kAllReduceOneShot,
      &kAllReduceTwoShot,
      &kAllReduceDoubling,
      &kAllReduceHalving,
      &kAllReduceRing,
      &kAllReduceRings,
      &kAllReduceTree,
      &kAllReduceChain,
      &kAllReduceTwoLevel,
      &kAllGatherDirect,
      &kAllGatherBruck,
      &kAllGatherDoubling,
      &kAllGatherRing,
      &kAllGatherPipelinedRing,
      &kReduceScatterDirect,
      &kReduceScatterHalving,
      &kReduceScatterRing,
      &kBroadcastDirect,
      &kBroadcastTree,
      &kBroadcastChain,
      &kBroadcastScatterGather,
      &kReduceDirect,
      &kReduceTree,
      &kReduceChain,
      &kReduceTwoShot,
      &kReduceRing,
      &kGatherDirect,
      &kGatherTree,
      &kScatterDirect,
      &kScatterTree,
      &kAllToAllDirect,
      &kAllToAllPairwise,
      &kAllToAllBruck,
      &kBarrierDissemination,
      &kBarrierDirect,
      &kSendDirect,
      &kReceiveDirect,
  };
  return kAll;
}

}  // namespace torch::comms::schedule
