#include "schedule/mistake.hpp"

namespace torch::comms::schedule {
namespace {

void replay(const Action& action, Step& out) {
  switch (action.kind) {
    case ActionKind::kSend:
      return out.send(action.peer, action.from);
    case ActionKind::kReceive:
      return out.receive(action.peer, action.into);
    case ActionKind::kReceiveReduce:
      return out.receive_reduce(action.peer, action.from, action.into, action.left_operand);
    case ActionKind::kSignal:
      return out.signal(action.peer);
    case ActionKind::kWait:
      return out.wait(action.peer);
    case ActionKind::kCopy:
      return out.copy(action.from, action.into);
    case ActionKind::kReduce:
      return out.reduce(action.from, action.other, action.into);
  }
}

}  // namespace

void replay_with(const Algorithm& good, Mistake mistake, const Problem& p, int64_t t, Step& out) {
  Step step;
  good.functions.step(p, t, step);
  Program::Actions actions{{step.transfers().begin(), step.transfers().end()},
                           {step.local().begin(), step.local().end()}};
  mistake(p, t, actions);
  for (const Action& action : actions.transfers) replay(action, out);
  for (const Action& action : actions.local) replay(action, out);
}

}  // namespace torch::comms::schedule
