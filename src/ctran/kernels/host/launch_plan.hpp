#pragma once

#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/protocol/params.hpp"

// A call as the kernels understand it: pure functions of it, of the team's size and of the choice.
namespace torch::comms::ctran::kernels {

struct LaunchPlan {
  KernelShape shape;
  int blocks, threads;

  constexpr int workers() const { return blocks * threads / kWarp; }
};

// How the algorithm is run on at most so many blocks; it is not kAutomatic. Whether it can be is
// for fits() to say.
LaunchPlan plan_of(int ranks, const KernelCall& call, KernelAlgorithm algorithm, int most_blocks);

// Whether the sizes and the arithmetic of the call are something for the algorithm.
bool can_run(int ranks, const KernelCall& call, KernelAlgorithm algorithm, int most_blocks);

// Whether the call makes sense at all.
bool is_valid(int ranks, const KernelCall& call);

// What of it has to be alike on all ranks, for fingerprint_of().
uint64_t plan_fingerprint(const LaunchPlan& plan);

TeamView team_view_of(const TeamDescriptor& team, Collective collective, uint64_t limit_ns);
CollectiveParams params_of(const TeamDescriptor& team, const KernelCall& call,
                           const LaunchPlan& plan);
// Whether a kernel of KernelShape::is_lean will do for it.
bool is_lean(const CollectiveParams& params);

}  // namespace torch::comms::ctran::kernels
