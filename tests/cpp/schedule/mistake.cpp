#include "schedule/mistake.hpp"

namespace torch::comms::schedule {
namespace {

void replay(const Action& action, Step& out) {
  switch (action.verb) {
    case Verb::kSend:
      return out.send(action.peer, action.from);
    case Verb::kReceive:
      return out.receive(action.peer, action.into);
    case Verb::kReceiveReduce:
      return out.receive_reduce(action.peer, action.from, action.into, action.first);
    case Verb::kSignal:
      return out.signal(action.peer);
    case Verb::kWait:
      return out.wait(action.peer);
    case Verb::kCopy:
      return out.copy(action.from, action.into);
    case Verb::kReduce:
      return out.reduce(action.from, action.other, action.into);
  }
}

}  // namespace

void replay_with(const Algorithm& good, Mistake mistake, const Problem& p, int64_t t, Step& out) {
  Step step;
  good.rules.step(p, t, step);
  Program::Actions actions{{step.transfers().begin(), step.transfers().end()},
                           {step.local().begin(), step.local().end()}};
  mistake(p, t, actions);
  for (const Action& action : actions.transfers) replay(action, out);
  for (const Action& action : actions.local) replay(action, out);
}

}  // namespace torch::comms::schedule
