#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/Stream.h>

#include "backends/nccl/api/sharded_relay.hpp"
#include "backends/nccl/api/vendor_backends.hpp"

namespace torch::comms {

// The extended build of AMD's library, and collectives of several groups of ranks at once, in which
// ranks outside of a group are relays of its data; see sharded_relay.hpp.
//
// Every rank of the communicator calls them, with the same groups and counts, and with a tensor for
// each group. Of a group that a rank is not in, its tensor is neither read nor written, may be
// empty, and says by its dtype what it relays. Groups may have ranks in common. A group's order is
// that of its list.
//
// They go over the library's messages, and are three operations of the communicator, each with its
// limit: shards to their carriers, what carriers do with them, and shards to their receivers.
// Asynchronous ones are on a stream of their own. kInvalidArgument: wrong groups, counts or
// tensors, before anything is sent; kUnsupported: a reduction or dtype that they have not. Without
// async_op they return null.
class TC_API TorchCommRCCLX final : public VendorBackend<TorchCommRCCLX, nccl::kRcclx> {
 public:
  using VendorBackend::VendorBackend;
  using Groups = std::vector<std::vector<int>>;
  using Counts = std::vector<int64_t>;

  // counts[g] elements of every rank of group g. Without `output` it is done in place.
  WorkPtr sharded_relay_multi_group_all_reduce(const Tensors& tensors, const ReduceOp& op,
                                               const Groups& groups, const Counts& counts,
                                               bool async_op, const std::optional<Tensors>& output);
  // A rank receives counts[g] elements, of as many from each rank for each.
  WorkPtr sharded_relay_multi_group_reduce_scatter(const Tensors& input, const Tensors& output,
                                                   const ReduceOp& op, const Groups& groups,
                                                   const Counts& counts, bool async_op);
  // counts[g] elements from each rank for each.
  WorkPtr sharded_relay_multi_group_all_to_all(const Tensors& input, const Tensors& output,
                                               const Groups& groups, const Counts& counts,
                                               bool async_op);
  // A rank gives counts[g] elements.
  WorkPtr sharded_relay_multi_group_all_gather(const Tensors& input, const Tensors& output,
                                               const Groups& groups, const Counts& counts,
                                               bool async_op);

 private:
  struct RelayCall;  // one call
  using RelayPlan = std::vector<nccl::relay::RelayTransfer> (*)(const std::vector<int>&, int64_t);
  // How many times its count an operand has.
  enum class Extent : uint8_t { kOne, kOnePerRank };
  struct Kind {
    OpName op;
    std::string_view name;  // lives forever
    RelayPlan plan;
    Extent input, output;
    const char *input_name, *output_name, *counts_name;
  };
  WorkPtr relay(const Kind& kind, const ReduceOp* op, const Tensors& input, const Tensors& output,
                const Groups& groups, const Counts& counts, bool async_op);
  void check(const Kind& kind, const ReduceOp* op, const Tensors& input, const Tensors& output,
             const Groups& groups, const Counts& counts, const Context& context) const;
  // The stream of asynchronous ones, behind what the current one has.
  c10::Stream async_stream();

  std::optional<c10::Stream> stream_;
};

}  // namespace torch::comms
