#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <torchcomms/options.hpp>
#include <torchcomms/types.hpp>

// Each operation is a value: one struct that borrows all arguments from the caller for the length
// of the call. Code that is the same for all operations (checks, hooks, records, dispatch) is
// written once, over `Operation`.
//
// The member names are those that hooks show. `kName` is the public name.
namespace torch::comms {

using Tensors = std::vector<at::Tensor>;
using Splits = std::vector<uint64_t>;

struct Send {
  static constexpr OpName kName = OpName::send;
  const at::Tensor& tensor;
  int peer;
  bool async_op;
  const SendOptions& options;
};
struct Recv {
  static constexpr OpName kName = OpName::recv;
  at::Tensor& tensor;
  int peer;
  bool async_op;
  const RecvOptions& options;
};
struct Broadcast {
  static constexpr OpName kName = OpName::broadcast;
  at::Tensor& tensor;
  int root;
  bool async_op;
  const BroadcastOptions& options;
};
struct AllReduce {
  static constexpr OpName kName = OpName::all_reduce;
  at::Tensor& tensor;
  const ReduceOp& op;
  bool async_op;
  const AllReduceOptions& options;
};
struct Reduce {
  static constexpr OpName kName = OpName::reduce;
  at::Tensor& tensor;
  int root;
  const ReduceOp& op;
  bool async_op;
  const ReduceOptions& options;
};
struct AllGather {
  static constexpr OpName kName = OpName::all_gather;
  const Tensors& output;
  const at::Tensor& input;
  bool async_op;
  const AllGatherOptions& options;
};
struct AllGatherV {
  static constexpr OpName kName = OpName::all_gather_v;
  const Tensors& output;
  const at::Tensor& input;
  bool async_op;
  const AllGatherOptions& options;
};
struct AllGatherSingle {
  static constexpr OpName kName = OpName::all_gather_single;
  at::Tensor& output;
  const at::Tensor& input;
  bool async_op;
  const AllGatherSingleOptions& options;
};
struct ReduceScatter {
  static constexpr OpName kName = OpName::reduce_scatter;
  at::Tensor& output;
  const Tensors& input;
  const ReduceOp& op;
  bool async_op;
  const ReduceScatterOptions& options;
};
struct ReduceScatterV {
  static constexpr OpName kName = OpName::reduce_scatter_v;
  at::Tensor& output;
  const Tensors& input;
  const ReduceOp& op;
  bool async_op;
  const ReduceScatterOptions& options;
};
struct ReduceScatterSingle {
  static constexpr OpName kName = OpName::reduce_scatter_single;
  at::Tensor& output;
  const at::Tensor& input;
  const ReduceOp& op;
  bool async_op;
  const ReduceScatterSingleOptions& options;
};
struct AllToAllSingle {
  static constexpr OpName kName = OpName::all_to_all_single;
  at::Tensor& output;
  const at::Tensor& input;
  bool async_op;
  const AllToAllSingleOptions& options;
};
// Split sizes count rows of dimension 0; a row has the product of the other dimensions.
struct AllToAllVSingle {
  static constexpr OpName kName = OpName::all_to_all_v_single;
  at::Tensor& output;
  const at::Tensor& input;
  const Splits& output_split_sizes;
  const Splits& input_split_sizes;
  bool async_op;
  const AllToAllvSingleOptions& options;
};
struct AllToAll {
  static constexpr OpName kName = OpName::all_to_all;
  const Tensors& output;
  const Tensors& input;
  bool async_op;
  const AllToAllOptions& options;
};
struct Barrier {
  static constexpr OpName kName = OpName::barrier;
  bool async_op;
  const BarrierOptions& options;
};
// Only the root reads `input`.
struct Scatter {
  static constexpr OpName kName = OpName::scatter;
  at::Tensor& output;
  const Tensors& input;
  int root;
  bool async_op;
  const ScatterOptions& options;
};
// Only the root writes `output`.
struct Gather {
  static constexpr OpName kName = OpName::gather;
  const Tensors& output;
  const at::Tensor& input;
  int root;
  bool async_op;
  const GatherOptions& options;
};
// Only the root writes `output`.
struct GatherSingle {
  static constexpr OpName kName = OpName::gather_single;
  at::Tensor& output;
  const at::Tensor& input;
  int root;
  bool async_op;
  const GatherSingleOptions& options;
};
struct Split {
  static constexpr OpName kName = OpName::split;
  const std::vector<int>& ranks;
  const std::string& name;
  const CommOptions& options;
};
struct NewWindow {
  static constexpr OpName kName = OpName::new_window;
};
struct BatchOpIssue {
  static constexpr OpName kName = OpName::batch_op_issue;
  const std::vector<P2POp>& ops;
  size_t num_ops;
  bool async_op;
  const BatchP2POptions& options;
};
struct Finalize {
  static constexpr OpName kName = OpName::finalize;
};

using Operation = std::variant<Send, Recv, Broadcast, AllReduce, Reduce, AllGather, AllGatherV,
                               AllGatherSingle, ReduceScatter, ReduceScatterV, ReduceScatterSingle,
                               AllToAllSingle, AllToAllVSingle, AllToAll, Barrier, Scatter, Gather,
                               GatherSingle, Split, NewWindow, BatchOpIssue, Finalize>;
static_assert(std::variant_size_v<Operation> == kOpNameCount);

inline OpName getOpName(const Operation& operation) noexcept {
  return std::visit([](const auto& op) { return op.kName; }, operation);
}

}  // namespace torch::comms
