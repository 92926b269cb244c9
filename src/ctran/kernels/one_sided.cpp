#include "ctran/kernels/one_sided.hpp"

#include "ctran/kernels/plan.hpp"

namespace torch::comms::ctran::kernels {

OneSidedParams params_of(const Team& team, const OneSided& step) {
  OneSidedParams p{};
  const auto which = waits(step.kind) ? Collective::kWaitSignal : Collective::kSignal;
  static_cast<Membership&>(p) = membership_of(team, which, step.limit_ns);
  p.step = step;
  return p;
}

}  // namespace torch::comms::ctran::kernels
