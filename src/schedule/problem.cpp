#include "schedule/problem.hpp"

#include <stdexcept>
#include <string>

namespace torch::comms::schedule {

std::string_view operation_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::kSend:
      return "send";
    case Operation::kReceive:
      return "receive";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kReduce:
      return "reduce";
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kGather:
      return "gather";
    case Operation::kScatter:
      return "scatter";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kBarrier:
      return "barrier";
  }
  return "?";
}

int64_t Problem::input_count() const noexcept {
  switch (operation) {
    case Operation::kReceive:
    case Operation::kBroadcast:
    case Operation::kBarrier:
      return 0;
    case Operation::kGather:
    case Operation::kAllGather:
      return blocks.count(rank);
    case Operation::kScatter:
      return rank == root ? count() : 0;
    default:
      return count();
  }
}

int64_t Problem::output_count() const noexcept {
  switch (operation) {
    case Operation::kSend:
    case Operation::kBarrier:
      return 0;
    case Operation::kScatter:
    case Operation::kReduceScatter:
      return blocks.count(rank);
    case Operation::kReduce:
    case Operation::kGather:
      return rank == root ? count() : 0;
    case Operation::kAllToAll:
      return receive_blocks.total();
    default:
      return count();
  }
}

Problem Problem::for_rank(int other) const noexcept {
  Problem problem = *this;
  problem.rank = other;
  return problem;
}

int Problem::ring_neighbor(int64_t distance) const noexcept {
  const auto i = static_cast<int>((rank + distance) % size);
  return i < 0 ? i + size : i;
}

namespace {

Problem checked(Problem problem) {
  const auto outside = [&](const char* what, int value) {
    if (value < 0 || value >= problem.size)
      throw std::invalid_argument(std::string(what) + " " + std::to_string(value) +
                                  " is outside [0, " + std::to_string(problem.size) + ")");
  };
  outside("rank", problem.rank);
  outside("root", problem.root);
  if (problem.blocks.smallest() < 0 || problem.blocks.total() < 0 ||
      problem.receive_blocks.smallest() < 0)
    throw std::invalid_argument("the number of elements is negative");
  if (problem.blocks.parts() != problem.size ||
      (problem.receive_blocks.parts() != 0 && problem.receive_blocks.parts() != problem.size))
    throw std::invalid_argument("the operation needs one block per rank");
  if (problem.receive_blocks.parts() == 0) return problem;
  const auto sent = problem.blocks.count(problem.rank);
  const auto received = problem.receive_blocks.count(problem.rank);
  if (sent != received)
    throw std::invalid_argument("this rank sends " + std::to_string(sent) +
                                " elements to itself, but receives " + std::to_string(received) +
                                " elements from itself; both counts must be equal");
  return problem;
}

}  // namespace

Problem vector_problem(Operation operation, int rank, int size, int64_t count, int root,
                       const AlgorithmOptions& options) {
  if (size < 1) throw std::invalid_argument("size " + std::to_string(size) + " is not positive");
  return checked({operation, rank, size, root, Blocks::even(count, size), {}, options});
}

Problem block_problem(Operation operation, int rank, const Blocks& blocks, int root,
                      const AlgorithmOptions& options) {
  return checked({operation, rank, blocks.parts(), root, blocks, {}, options});
}

Problem all_to_all_problem(int rank, const Blocks& sent, const Blocks& received,
                           const AlgorithmOptions& options) {
  return checked({Operation::kAllToAll, rank, sent.parts(), 0, sent, received, options});
}

}  // namespace torch::comms::schedule
