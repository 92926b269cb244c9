"""
Registers the backend on import.
"""

from __future__ import annotations
import collections.abc
import torch
import torchcomms._comms
import typing

__all__: list[str] = ["TorchCommRCCLX"]

class TorchCommRCCLX(torchcomms._comms.TorchCommBackend):
    """
    The backend behind a communicator; from TorchComm.get_backend_impl().
    """
    def sharded_relay_multi_group_all_gather(
        self,
        input_tensors: collections.abc.Sequence[torch.Tensor],
        output_tensors: collections.abc.Sequence[torch.Tensor],
        all_active_ranks: collections.abc.Sequence[
            collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]
        ],
        per_group_send_counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        async_op: bool = False,
    ) -> torchcomms._comms.TorchWork:
        """
        all_gather in several groups of ranks at once, with all ranks as relays.

        Group g consists of the ranks all_active_ranks[g]. output_tensors[g] becomes the input_tensors[g] of
        all of them, in the order of the list. Each tensor is cut into as many shards as the communicator has
        ranks, and each rank relays one.

        Args:
            input_tensors: one for each group; contiguous, per_group_send_counts[g] elements. For a group
                without this rank: any tensor of its dtype.
            output_tensors: one for each group; contiguous, per_group_send_counts[g] elements for each rank of
                the group. For a group without this rank: any tensor of its dtype.
            all_active_ranks: the groups, lists of distinct ranks.
            per_group_send_counts: elements that a rank contributes, by group; may be 0.
            async_op: True returns a work; the current stream does not wait for it before wait().
        Returns:
            TorchWork if async_op, else None.
        Raises:
            InvalidArgument: groups, counts or tensors are not as described above; nothing was sent.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        """
    def sharded_relay_multi_group_all_reduce(
        self,
        tensors: collections.abc.Sequence[torch.Tensor],
        op: torchcomms._comms.ReduceOp,
        all_active_ranks: collections.abc.Sequence[
            collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]
        ],
        per_group_counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        async_op: bool = False,
        output_tensors: collections.abc.Sequence[torch.Tensor] | None = None,
    ) -> torchcomms._comms.TorchWork:
        """
        all_reduce in several groups of ranks at once, with all ranks as relays.

        Group g consists of the ranks all_active_ranks[g]. Each of them ends with the reduction of all
        tensors[g] of the group. Each tensor is cut into as many shards as the communicator has ranks. Every
        rank, also one outside of the group, receives one shard from all ranks of the group, reduces it and
        sends the result back. So the group uses the links of its ranks to all ranks, not only to each other.

        Every rank of the communicator must call this with the same groups, counts and op. Groups may share
        ranks.

        Args:
            tensors: one for each group, on the communicator's device. For a group with this rank:
                contiguous, with per_group_counts[g] elements. For another group: any tensor of the group's
                dtype; it may be empty and is neither read nor written.
            op: SUM, PRODUCT, MIN, MAX or AVG; AVG divides by the number of ranks in the group.
            all_active_ranks: the groups, lists of distinct ranks.
            per_group_counts: elements of a tensor, by group; may be 0.
            async_op: True returns a work; the current stream does not wait for it before wait().
            output_tensors: where the results are written, like `tensors`; None: in place.
        Returns:
            TorchWork if async_op, else None.
        Raises:
            InvalidArgument: groups, counts or tensors are not as described above; nothing was sent.
            Unsupported: the reduction or the dtype is not supported.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        Cost:
            With P ranks, a group of A ranks and tensors of B bytes: a rank of the group sends B / P bytes to
            each rank, and (A - 1) B / P bytes to return its shard; a relay sends A B / P bytes.
        """
    def sharded_relay_multi_group_all_to_all(
        self,
        input_tensors: collections.abc.Sequence[torch.Tensor],
        output_tensors: collections.abc.Sequence[torch.Tensor],
        all_active_ranks: collections.abc.Sequence[
            collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]
        ],
        per_group_segment_counts: collections.abc.Sequence[
            typing.SupportsInt | typing.SupportsIndex
        ],
        async_op: bool = False,
    ) -> torchcomms._comms.TorchWork:
        """
        all_to_all in several groups of ranks at once, with all ranks as relays.

        Group g consists of the ranks all_active_ranks[g]. The i-th segment of output_tensors[g] of the j-th
        rank becomes the j-th segment of input_tensors[g] of the i-th rank. Each segment is cut into as many
        shards as the communicator has ranks, and each rank relays one. A rank's segment for itself is copied.

        Args:
            input_tensors: one for each group; contiguous, per_group_segment_counts[g] elements for each rank
                of the group. For a group without this rank: any tensor of its dtype.
            output_tensors: as input_tensors.
            all_active_ranks: the groups, lists of distinct ranks.
            per_group_segment_counts: elements of a segment, by group; may be 0.
            async_op: True returns a work; the current stream does not wait for it before wait().
        Returns:
            TorchWork if async_op, else None.
        Raises:
            InvalidArgument: groups, counts or tensors are not as described above; nothing was sent.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        """
    def sharded_relay_multi_group_reduce_scatter(
        self,
        input_tensors: collections.abc.Sequence[torch.Tensor],
        output_tensors: collections.abc.Sequence[torch.Tensor],
        op: torchcomms._comms.ReduceOp,
        all_active_ranks: collections.abc.Sequence[
            collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]
        ],
        per_group_recv_counts: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        async_op: bool = False,
    ) -> torchcomms._comms.TorchWork:
        """
        reduce_scatter in several groups of ranks at once, with all ranks as relays.

        Group g consists of the ranks all_active_ranks[g]. output_tensors[g] of the i-th rank becomes the
        reduction of the i-th parts of all input_tensors[g] of the group. Every rank of the communicator
        reduces one shard of each part and sends it to its receiver; see
        sharded_relay_multi_group_all_reduce.

        Args:
            input_tensors: one for each group; contiguous, per_group_recv_counts[g] elements for each rank of
                the group. For a group without this rank: any tensor of its dtype.
            output_tensors: one for each group; contiguous, per_group_recv_counts[g] elements. For a group
                without this rank: any tensor of its dtype.
            op: SUM, PRODUCT, MIN, MAX or AVG; AVG divides by the number of ranks in the group.
            all_active_ranks: the groups, lists of distinct ranks.
            per_group_recv_counts: elements that a rank receives, by group; may be 0.
            async_op: True returns a work; the current stream does not wait for it before wait().
        Returns:
            TorchWork if async_op, else None.
        Raises:
            InvalidArgument: groups, counts or tensors are not as described above; nothing was sent.
            Unsupported: the reduction or the dtype is not supported.
            CommTimeout, PeerFailed, CommFinalized: see docs/concepts/errors.md.
        """
