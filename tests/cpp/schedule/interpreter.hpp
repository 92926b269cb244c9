#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "schedule/algorithm.hpp"

// Runs the schedules of all ranks of an operation in memory and says whether they keep the contract
// of schedule/action.hpp. Knows nothing of any algorithm.
namespace torch::comms::schedule {

// What an element is made of, instead of a number alone.
struct Cell {
  bool written = false;
  uint64_t sum = 0;  // of what each contribution counts for: equal sums, equal contributions
  uint64_t order =
      0;            // of the whole expression, operand by operand: equal if and only if added alike
  float value = 0;  // the plain float sum, of numbers so different in size that order shows

  friend bool operator==(const Cell&, const Cell&) = default;
};

// Element `index` of what `rank` puts in.
Cell leaf(int rank, int64_t index);
Cell add(const Cell& left, const Cell& right);

// What one rank runs.
struct Program {
  struct Actions {
    std::vector<Action> transfers, local;
  };
  Problem problem;
  int64_t scratch = 0;
  int64_t steps = 0;
  std::function<void(int64_t t, Actions& out)> step;
};
Program program_of(const Algorithm& algorithm, const Problem& problem);

struct Conditions {
  uint64_t seed = 1;      // of the order in which messages leave and arrive and ranks go on
  int credits = 1;        // messages from one rank to another that may be under way; 0: they meet
  bool in_place = false;  // buffers share memory as the table of schedule/problem.hpp says
};

struct Report {
  // "" when all ranks ended and all rules held, else what went wrong first, where. The rules:
  // ranges lie within their buffers; nothing is read that was not written; no transfer touches what
  // another one of the step writes; operands overlap their target exactly or not at all; messages
  // meet in the same step with the same number of elements; nobody waits for ever (then: who for
  // whom) and nothing is left over; an input that is not shared with the output stays as it was.
  std::string failure;
  std::vector<std::vector<Cell>> outputs;  // by rank
  std::vector<Cost> measured;              // by rank; scratch: what was given to it
  int64_t idle_steps = 0;                  // in which no rank sent or received anything
};

Report interpret(std::span<const Program> programs, const Conditions& conditions);

}  // namespace torch::comms::schedule
