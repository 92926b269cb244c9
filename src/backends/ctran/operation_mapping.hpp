#pragma once

#include <optional>

#include <torchcomms/types.hpp>

#include "schedule/problem.hpp"

namespace torch::comms::ctran {

// Returns: the collective of schedule/ behind a public operation; nothing for an operation that is
// not a collective.
constexpr std::optional<schedule::Operation> operation_of(OpName op) noexcept {
  using schedule::Operation;
  switch (op) {
    case OpName::broadcast:
      return Operation::kBroadcast;
    case OpName::all_reduce:
      return Operation::kAllReduce;
    case OpName::reduce:
      return Operation::kReduce;
    case OpName::all_gather:
    case OpName::all_gather_v:
    case OpName::all_gather_single:
      return Operation::kAllGather;
    case OpName::reduce_scatter:
    case OpName::reduce_scatter_v:
    case OpName::reduce_scatter_single:
      return Operation::kReduceScatter;
    case OpName::all_to_all:
    case OpName::all_to_all_single:
    case OpName::all_to_all_v_single:
      return Operation::kAllToAll;
    case OpName::barrier:
      return Operation::kBarrier;
    case OpName::scatter:
      return Operation::kScatter;
    case OpName::gather:
    case OpName::gather_single:
      return Operation::kGather;
    default:
      return std::nullopt;
  }
}

}  // namespace torch::comms::ctran
