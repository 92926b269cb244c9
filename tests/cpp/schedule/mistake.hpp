#pragma once

#include "schedule/interpreter.hpp"

namespace torch::comms::schedule {

// Changes what a rank does in a step.
using Mistake = void (*)(const Problem&, int64_t t, Program::Actions&);

// A step of `good`, with `mistake` made.
void replay_with(const Algorithm& good, Mistake mistake, const Problem& p, int64_t t, Step& out);

}  // namespace torch::comms::schedule
