#pragma once

#include "backends/nccl/api/rcclx_backend.hpp"

// Docstrings of the Python methods that only TorchCommRCCLX has.
namespace torch::comms::rcclx {

inline constexpr const char* kAllReduceDoc =
    R"DOC(all_reduce in several groups of ranks at once, with all ranks as relays.

In group g, of the ranks all_active_ranks[g], every tensors[g] becomes the reduction of all of them.
Each tensor is cut into as many shards as the communicator has ranks. Every rank, also one outside
of the group, gets one shard from all ranks of the group, reduces it, and gives it back to them; so
the group uses its ranks' links to all ranks, and not those inside of it alone.

Every rank of the communicator calls it, with the same groups, counts and op. Groups may share ranks.

Args:
    tensors: one a group, on the communicator's device. Of a group with this rank contiguous, with
        per_group_counts[g] elements; of another one any tensor of the group's dtype, which may be
        empty and is not touched.
    op: SUM, PRODUCT, MIN, MAX or AVG; AVG divides by the ranks of the group.
    all_active_ranks: the groups, lists of distinct ranks.
    per_group_counts: elements, by group; may be 0.
    async_op: True returns a work, for which the current stream need not wait yet.
    output_tensors: where results go, like `tensors`; None: in place.
Returns:
    TorchWork with async_op, else None.
Raises:
    InvalidArgument: groups, counts or tensors differ from the above; nothing was sent.
    Unsupported: the reduction, or dtype.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
Cost:
    With P ranks a rank of a group of A sends B / P bytes to each rank, and (A - 1) B / P to hand its
    shard back; a relay sends A B / P.)DOC";

inline constexpr const char* kReduceScatterDoc =
    R"DOC(reduce_scatter in several groups of ranks at once, with all ranks as relays.

In group g, of the ranks all_active_ranks[g], output_tensors[g] of the i-th of them becomes the
reduction of all their i-th parts of input_tensors[g]. Shards of each part are reduced by every rank
of the communicator, and go to whom they are for; see sharded_relay_multi_group_all_reduce.

Args:
    input_tensors: one a group; contiguous, as many times per_group_recv_counts[g] elements as the
        group has ranks. Of a group without this rank any tensor of its dtype.
    output_tensors: one a group; contiguous, per_group_recv_counts[g] elements. As above.
    op: SUM, PRODUCT, MIN, MAX or AVG; AVG divides by the ranks of the group.
    all_active_ranks: the groups, lists of distinct ranks.
    per_group_recv_counts: elements that a rank receives, by group; may be 0.
    async_op: True returns a work, for which the current stream need not wait yet.
Returns:
    TorchWork with async_op, else None.
Raises:
    InvalidArgument: groups, counts or tensors differ from the above; nothing was sent.
    Unsupported: the reduction, or dtype.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.)DOC";

inline constexpr const char* kAllToAllDoc =
    R"DOC(all_to_all in several groups of ranks at once, with all ranks as relays.

In group g, of the ranks all_active_ranks[g], the i-th segment of output_tensors[g] of the j-th of
them becomes the j-th segment of input_tensors[g] of the i-th. Each segment is cut into as many
shards as the communicator has ranks, and each rank passes one on; what a rank keeps is copied.

Args:
    input_tensors: one a group; contiguous, as many times per_group_segment_counts[g] elements as the
        group has ranks. Of a group without this rank any tensor of its dtype.
    output_tensors: as input_tensors.
    all_active_ranks: the groups, lists of distinct ranks.
    per_group_segment_counts: elements of a segment, by group; may be 0.
    async_op: True returns a work, for which the current stream need not wait yet.
Returns:
    TorchWork with async_op, else None.
Raises:
    InvalidArgument: groups, counts or tensors differ from the above; nothing was sent.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.)DOC";

inline constexpr const char* kAllGatherDoc =
    R"DOC(all_gather in several groups of ranks at once, with all ranks as relays.

In group g, of the ranks all_active_ranks[g], output_tensors[g] becomes the input_tensors[g] of all
of them, in the order of the list. Each tensor is cut into as many shards as the communicator has
ranks, and each rank passes one on.

Args:
    input_tensors: one a group; contiguous, per_group_send_counts[g] elements. Of a group without
        this rank any tensor of its dtype.
    output_tensors: one a group; contiguous, as many times per_group_send_counts[g] elements as the
        group has ranks. As above.
    all_active_ranks: the groups, lists of distinct ranks.
    per_group_send_counts: elements that a rank gives, by group; may be 0.
    async_op: True returns a work, for which the current stream need not wait yet.
Returns:
    TorchWork with async_op, else None.
Raises:
    InvalidArgument: groups, counts or tensors differ from the above; nothing was sent.
    CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.)DOC";

}  // namespace torch::comms::rcclx
