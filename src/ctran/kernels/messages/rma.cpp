#include "ctran/kernels/messages/rma.hpp"

#include "ctran/kernels/host/launch_plan.hpp"

namespace torch::comms::ctran::kernels {

KernelRmaParams params_of(const TeamDescriptor& team, const KernelRmaOperation& step) {
  KernelRmaParams p{};
  const auto which = is_wait(step.kind) ? Collective::kWaitSignal : Collective::kSignal;
  static_cast<TeamView&>(p) = team_view_of(team, which, step.timeout_ns);
  p.step = step;
  return p;
}

}  // namespace torch::comms::ctran::kernels
