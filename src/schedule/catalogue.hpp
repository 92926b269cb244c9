#pragma once

#include "schedule/algorithm.hpp"

// The entries of the table of algorithms. Each is defined in the file of algorithms/ that is named
// at its right.
namespace torch::comms::schedule {

extern const Algorithm kAllReduceRing, kAllReduceRings;           // all_reduce_ring.cpp
extern const Algorithm kAllReduceDoubling, kAllReduceHalving;     // all_reduce_doubling.cpp
extern const Algorithm kAllReduceOneShot, kAllReduceTwoShot;      // all_reduce_direct.cpp
extern const Algorithm kAllReduceTree, kAllReduceChain;           // all_reduce_pipeline.cpp
extern const Algorithm kAllReduceTwoLevel;                        // all_reduce_two_level.cpp
extern const Algorithm kAllGatherDirect, kAllGatherRing;          // all_gather.cpp
extern const Algorithm kAllGatherPipelinedRing;                   // all_gather.cpp
extern const Algorithm kAllGatherBruck, kAllGatherDoubling;       // all_gather_doubling.cpp
extern const Algorithm kReduceScatterDirect, kReduceScatterRing;  // reduce_scatter.cpp
extern const Algorithm kReduceScatterHalving;                     // reduce_scatter_halving.cpp
extern const Algorithm kBroadcastDirect, kBroadcastTree;          // broadcast.cpp
extern const Algorithm kBroadcastChain, kBroadcastScatterGather;  // broadcast.cpp
extern const Algorithm kReduceDirect, kReduceTree, kReduceChain;  // reduce.cpp
extern const Algorithm kReduceTwoShot, kReduceRing;               // reduce_scattered.cpp
extern const Algorithm kGatherDirect, kScatterDirect;             // gather_scatter.cpp
extern const Algorithm kGatherTree, kScatterTree;                 // gather_scatter_tree.cpp
extern const Algorithm kAllToAllDirect, kAllToAllPairwise;        // all_to_all.cpp
extern const Algorithm kAllToAllBruck;                            // all_to_all_bruck.cpp
extern const Algorithm kBarrierDirect, kBarrierDissemination, kSendDirect,
    kReceiveDirect;  // point_to_point.cpp

}  // namespace torch::comms::schedule
