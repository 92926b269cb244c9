#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/Stream.h>

#include "backends/nccl/api/sharded_relay.hpp"
#include "backends/nccl/api/vendor_backends.hpp"

namespace torch::comms {

// The backend over RCCLX, the extended build of AMD's library. It adds collectives of several
// groups of ranks at once, in which ranks outside of a group relay its data; see sharded_relay.hpp.
//
// Every rank of the communicator calls them with the same groups and counts, and with a tensor for
// each group. The tensor of a group without this rank is neither read nor written and may be empty;
// its dtype is the dtype that this rank relays. Groups may share ranks. A group's order is that of
// its list.
//
// Each call is three operations of the communicator, each with its own timeout. Shards go to their
// relay ranks, which reduce them, and the results go to their destinations. They use the library's
// sends and receives. Asynchronous calls run on a stream of their own. Without async_op they return
// null.
//
// Throws: kInvalidArgument for wrong groups, counts or tensors, before anything is sent;
// kUnsupported for a reduction or dtype that relay ranks do not support.
class TC_API TorchCommRCCLX final : public VendorBackend<TorchCommRCCLX, nccl::kRcclx> {
 public:
  using VendorBackend::VendorBackend;
  using Groups = std::vector<std::vector<int>>;
  using Counts = std::vector<int64_t>;

  // Reduces counts[g] elements of every rank of group g; in place without `output`.
  WorkPtr sharded_relay_multi_group_all_reduce(const Tensors& tensors, const ReduceOp& op,
                                               const Groups& groups, const Counts& counts,
                                               bool async_op, const std::optional<Tensors>& output);
  // A rank of group g receives counts[g] reduced elements; it contributes counts[g] elements for
  // each rank.
  WorkPtr sharded_relay_multi_group_reduce_scatter(const Tensors& input, const Tensors& output,
                                                   const ReduceOp& op, const Groups& groups,
                                                   const Counts& counts, bool async_op);
  // Each rank of group g sends counts[g] elements to each rank of the group.
  WorkPtr sharded_relay_multi_group_all_to_all(const Tensors& input, const Tensors& output,
                                               const Groups& groups, const Counts& counts,
                                               bool async_op);
  // Each rank of group g contributes counts[g] elements.
  WorkPtr sharded_relay_multi_group_all_gather(const Tensors& input, const Tensors& output,
                                               const Groups& groups, const Counts& counts,
                                               bool async_op);

 private:
  struct RelayCall;
  using RelayPlan = std::vector<nccl::relay::RelayTransfer> (*)(const std::vector<int>&, int64_t);
  // The elements of an operand: the count, or the count for each rank.
  enum class Extent : uint8_t { kOne, kOnePerRank };
  struct Kind {
    OpName op;
    std::string_view name;  // a string literal
    RelayPlan plan;
    Extent input, output;
    const char *input_name, *output_name, *counts_name;
  };
  WorkPtr relay(const Kind& kind, const ReduceOp* op, const Tensors& input, const Tensors& output,
                const Groups& groups, const Counts& counts, bool async_op);
  void check(const Kind& kind, const ReduceOp* op, const Tensors& input, const Tensors& output,
             const Groups& groups, const Counts& counts, const Context& context) const;
  // Returns: the stream of asynchronous calls, which waits for the current stream.
  c10::Stream async_stream();

  std::optional<c10::Stream> stream_;
};

}  // namespace torch::comms
