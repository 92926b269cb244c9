#pragma once

#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/protocol/params.hpp"

// Translates a call into parameters of a kernel: pure functions of the call, the team's size and
// the algorithm.
namespace torch::comms::ctran::kernels {

struct LaunchPlan {
  KernelShape shape;
  int blocks, threads;

  constexpr int workers() const { return blocks * threads / kWarp; }
};

// Returns how `algorithm` runs a call on at most `most_blocks` blocks. `algorithm` must not be
// kAutomatic. can_run() says whether the plan is usable.
LaunchPlan plan_of(int ranks, const KernelCall& call, KernelAlgorithm algorithm, int most_blocks);

// Whether the algorithm supports the collective of a valid call, and the call fits into one launch.
bool can_run(int ranks, const KernelCall& call, KernelAlgorithm algorithm, int most_blocks);

// Whether the call makes sense for a team of `ranks` ranks.
bool is_valid(int ranks, const KernelCall& call);

// Returns the part of a plan that must be equal on all ranks, for fingerprint_of().
uint64_t plan_fingerprint(const LaunchPlan& plan);

TeamView team_view_of(const TeamDescriptor& team, Collective collective, uint64_t limit_ns);
CollectiveParams params_of(const TeamDescriptor& team, const KernelCall& call,
                           const LaunchPlan& plan);
// Whether a lean kernel (KernelShape::is_lean) can run it.
bool is_lean(const CollectiveParams& params);

}  // namespace torch::comms::ctran::kernels
