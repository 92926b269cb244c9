#include "schedule/patterns/contiguous_transfer.hpp"

#include <gtest/gtest.h>

#include "schedule/proof.hpp"
#include "schedule/rank_memory.hpp"

namespace torch::comms::schedule {
namespace {

TEST(Piece, IsOneRangeOnEitherSide) {
  Step sent, received;
  sent.send(7, {Buffer::kInput, 10, 3});
  sent.send(1, {Buffer::kInput, 0, 3});
  sent.signal(1);
  sent.send(1, {Buffer::kOutput, 5, 4});
  received.receive(0, {Buffer::kScratch, 1, 5});
  received.receive(7, {Buffer::kOutput, 20, 9});
  received.receive_reduce(0, {Buffer::kInput, 2, 2}, {Buffer::kOutput, 8, 2},
                          LeftOperand::kIncoming);
  std::vector<ContiguousTransfer> pieces;
  append_contiguous_transfers(0, sent, 1, received, pieces);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].from, (Range{Buffer::kInput, 0, 3}));
  EXPECT_EQ(pieces[0].into, (Range{Buffer::kScratch, 1, 3}));
  EXPECT_EQ(pieces[1].from, (Range{Buffer::kOutput, 5, 2}));
  EXPECT_EQ(pieces[1].into, (Range{Buffer::kScratch, 4, 2}));
  EXPECT_EQ(pieces[1].kind, ActionKind::kReceive);
  EXPECT_EQ(pieces[2].from, (Range{Buffer::kOutput, 7, 2}));
  EXPECT_EQ(pieces[2].into, (Range{Buffer::kOutput, 8, 2}));
  EXPECT_EQ(pieces[2].own, (Range{Buffer::kInput, 2, 2}));
  EXPECT_EQ(pieces[2].kind, ActionKind::kReceiveReduce);
  EXPECT_EQ(pieces[2].left_operand, LeftOperand::kIncoming);
}

void run_local(const Step& step, RankMemory& memory) {
  for (const Action& action : step.local()) {
    const auto into = memory.write(action.into);
    const auto from = memory.read(action.from);
    for (size_t i = 0; i < into.size(); ++i)
      into[i] =
          action.kind == ActionKind::kCopy ? from[i] : add(from[i], memory.read(action.other)[i]);
  }
}

// All ranks in step, over memory that everybody can reach: pieces are copied or added straight from
// the sender's memory to the receiver's, in whatever order ranks come.
std::vector<std::vector<Cell>> one_sided(const Algorithm& algorithm, const Problems& problems) {
  std::vector<RankMemory> memories;
  std::vector<Step> steps(static_cast<size_t>(problems.size()));
  for (int rank = 0; rank < problems.size(); ++rank)
    memories.emplace_back(problems[rank], algorithm.scratch(problems[rank]), true);
  std::vector<ContiguousTransfer> pieces;
  for (int64_t t = 0; t < algorithm.steps(problems[0]); ++t) {
    for (int rank = 0; rank < problems.size(); ++rank)
      algorithm.step(problems[rank], t, steps[rank]);
    for (int to = 0; to < problems.size(); ++to)
      for (int from = 0; from < problems.size(); ++from) {
        pieces.clear();
        append_contiguous_transfers(from, steps[from], to, steps[to], pieces);
        for (const ContiguousTransfer& piece : pieces) {
          const auto incoming = memories[from].read(piece.from);
          const auto into = memories[to].write(piece.into);
          for (size_t i = 0; i < into.size(); ++i) {
            if (piece.kind == ActionKind::kReceive) {
              into[i] = incoming[i];
              continue;
            }
            const Cell own = memories[to].read(piece.own)[i];
            into[i] = piece.left_operand == LeftOperand::kOwn ? add(own, incoming[i])
                                                              : add(incoming[i], own);
          }
        }
      }
    for (int rank = 0; rank < problems.size(); ++rank) run_local(steps[rank], memories[rank]);
  }
  std::vector<std::vector<Cell>> outputs;
  for (const RankMemory& memory : memories) outputs.push_back(memory.output());
  return outputs;
}

TEST(Piece, MakesAnyScheduleOneSided) {
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->operation <= Operation::kReceive) continue;
    for (const int size : {1, 2, 5, 8, 11}) {
      const bool uneven = algorithm->operation >= Operation::kGather &&
                          algorithm->operation <= Operation::kReduceScatter;
      const Problems problems({algorithm->operation,
                               size,
                               algorithm->operation == Operation::kBarrier ? 0 : 7,
                               size / 2,
                               {.chunk = 3},
                               uneven});
      std::vector<Program> programs;
      for (int rank = 0; rank < size; ++rank)
        programs.push_back(program_of(*algorithm, problems[rank]));
      const Report report = interpret(programs, {});
      ASSERT_EQ(report.failure, "");
      EXPECT_EQ(one_sided(*algorithm, problems), report.outputs) << algorithm->name;
    }
  }
}

}  // namespace
}  // namespace torch::comms::schedule
