#pragma once

#include "ctran/kernels/region_plan.hpp"

// A call on a region by copy engines: all that is enqueued for it, as pure functions of it.
namespace torch::comms::ctran::kernels {

struct Copy {
  char* to;
  const char* from;
  size_t bytes;
};
struct Copies {
  Copy all[kMaxRanks];  // to peers
  int count = 0;
  Copy own{};  // of what this rank has for itself; no bytes: there is none
};

// The copies of a stage. After each stage the ranks meet. Of a call that is_by_copies().
int stages_of(const Team& team, const RegionCall& call);
Copies copies_of(const Team& team, const RegionCall& call, int stage);

// The kernel of an all-reduce that makes this rank's part of it, in its own tensor.
RegionParams sum_of(const Team& team, const RegionCall& call);

// Bytes of a copy that is worth a fork: that costs microseconds, which is what a shorter one takes.
inline constexpr size_t kLeastBeside = size_t{8} << 20;
// Whether `call.side` has a use. False where the call makes no sense.
bool wants_side(const Team& team, const RegionCall& call);

// All that a library enqueues, in this order. `meet()` is a launch of params_of(), `reduce()` one
// of sum_of(), `copy(Copy)` one of the copies to peers; `own.begin(Copy)` begins the copy of what
// this rank has for itself, which what comes after `own.join()` waits for. They give 0, or an
// error, which ends it and is the result; but what has begun is joined.
template <class Meet, class Reduce, class CopyOne, class Own>
int launch_by_copies(const Team& team, const RegionCall& call, const Meet& meet,
                     const Reduce& reduce, const CopyOne& copy, Own& own) {
  int error = is_reduction(call.call.collective) ? reduce() : meet();
  const auto copy_all = [&](const Copies& copies) {
    for (int i = 0; i < copies.count && error == 0; ++i) error = copy(copies.all[i]);
  };
  for (int stage = 0; stage < stages_of(team, call) && error == 0; ++stage) {
    const Copies copies = copies_of(team, call, stage);
    const bool has_own = copies.own.bytes != 0;
    if (has_own) error = own.begin(copies.own);
    copy_all(copies);
    const int joined = has_own ? own.join() : 0;
    if (error == 0) error = joined;
    if (error == 0) error = meet();
  }
  return error;
}

}  // namespace torch::comms::ctran::kernels
