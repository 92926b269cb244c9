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

// Of what is moved: the copies of a stage. After each stage the ranks meet.
int stages_of(const Team& team, const RegionCall& call);
Copies copies_of(const Team& team, const RegionCall& call, int stage);

// Bytes of a copy that is worth a fork: that costs microseconds, which is what a shorter one takes.
inline constexpr size_t kLeastBeside = size_t{8} << 20;
// Whether `call.side` has a use. False where the call makes no sense.
bool wants_side(const Team& team, const RegionCall& call);

// Of reductions: each rank makes its part of the result in chunks, of which all peers' operands are
// in its scratch at once, in one half of it or the other in turn. The ranks meet when they have
// pushed the operands of a chunk, and again at the end.
//
// Why a half may be written anew: chunk i + 2 is pushed after the meeting of chunk i + 1, to which
// its owner has come after it had reduced chunk i and copied the result away. The first chunks of a
// launch are pushed after the last meeting of the one before, to which that holds as well.
//
// Why a result may be written: it is pushed after the meeting of its chunk, to which its receiver
// has come with its own operands of the chunk pushed.
struct Chunk {
  Copies in;         // this rank's operands, to those who make something of them
  RegionParams sum;  // of the kernel that reduces, which does not meet
  Copies out;        // of its result
  bool has_sum;      // else this rank makes nothing of the chunk
};
// As many on all ranks.
size_t chunks_of(const Team& team, const RegionCall& call);
Chunk chunk_of(const Team& team, const RegionCall& call, size_t number);

// Blocks of the kernel that reduces, where the call does not say.
inline constexpr int kSumBlocks = 16;

// All that a library enqueues, in this order. `meet()` is a launch of params_of(), `copy(Copy)` one
// of the copies to peers, `reduce(RegionParams)` the kernel of a chunk; `own.begin(Copy)` begins
// the copy of what this rank has for itself, which what comes after `own.join()` waits for. They
// give 0, or an error, which ends it and is the result; but what has begun is joined.
template <class Meet, class CopyOne, class Own, class Reduce>
int launch_by_copies(const Team& team, const RegionCall& call, const Meet& meet,
                     const CopyOne& copy, Own& own, const Reduce& reduce) {
  int error = 0;
  const auto copy_all = [&](const Copies& copies) {
    for (int i = 0; i < copies.count && error == 0; ++i) error = copy(copies.all[i]);
  };
  if (is_reduction(call.call.collective)) {
    const size_t chunks = chunks_of(team, call);
    for (size_t i = 0; i < chunks && error == 0; ++i) {
      const Chunk chunk = chunk_of(team, call, i);
      copy_all(chunk.in);
      if (error == 0) error = meet();
      if (error == 0 && chunk.has_sum) error = reduce(chunk.sum);
      copy_all(chunk.out);
    }
    return error == 0 ? meet() : error;
  }
  error = meet();
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
