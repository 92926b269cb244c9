#pragma once

#include <cstdint>
#include <string>

// What goes wrong in the stand-in, by plan: a comma list of
//   fail=<Call>:<n>   the n-th call returns "system error"
//   hang=<Call>:<n>   the operation of the n-th call never ends, until the communicator is aborted
//   hang=CommAbort:<n>  the n-th call does not return before the plan changes; the same of
//                       CommRegister and CommDeregister
//   stick=<Call>:<n>  the n-th call does not return before the communicator is aborted
//   lose=<Call>:<n>   the same, with "remote error" as the communicator's asynchronous one
//   slow=<Call>:<us>  every such operation takes that much longer
//   blind=1           ranks that disagree wait for ever instead of an error, as NCCL's do
//   progress=<polls>  of communicators that do not block: how often they say "in progress"
// <Call> is a function without its prefix, or any. Counting begins with each plan.
namespace torch::comms::standin {

struct PlannedFault {
  bool fails = false, hangs = false, sticks = false, is_lost = false;
  int64_t slower_us = 0;
};

// The plan of this process; before any, that of the variable TORCHCOMMS_STAND_IN. False for a text
// that is no plan: the one before stays.
bool set_plan(const std::string& text);
// Counts one call.
PlannedFault next_fault(const char* call);
bool is_blind();
int polls_in_progress();
// Until set_plan() is called.
void await_next_plan();

}  // namespace torch::comms::standin
