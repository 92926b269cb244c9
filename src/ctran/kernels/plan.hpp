#pragma once

#include "ctran/kernels/find.hpp"
#include "ctran/kernels/params.hpp"

// A call as the kernels understand it: pure functions of it, of the team's size and of the choice.
namespace torch::comms::ctran::kernels {

struct Plan {
  Shape shape;
  int blocks, threads;

  constexpr int workers() const { return blocks * threads / kWarp; }
};

// How the algorithm is run on at most so many blocks; it is not kAutomatic. Whether it can be is
// for fits() to say.
Plan plan_of(int ranks, const Call& call, Algorithm algorithm, int most_blocks);

// Whether the sizes and the arithmetic of the call are something for the algorithm.
bool fits(int ranks, const Call& call, Algorithm algorithm, int most_blocks);

// Whether the call makes sense at all.
bool is_sound(int ranks, const Call& call);

// What of it has to be alike on all ranks, for print_of().
uint64_t way_of(const Plan& plan);

Membership membership_of(const Team& team, Collective collective, uint64_t limit_ns);
Params params_of(const Team& team, const Call& call, const Plan& plan);
// Whether a kernel of Shape::is_lean will do for it.
bool is_lean(const Params& params);

}  // namespace torch::comms::ctran::kernels
