"""The measured collectives, on TorchComm and on torch.distributed.

`bytes` is the largest buffer of a rank: the whole result of a gather, the whole input of a scatter.
The bus factors are those of nccl-tests, which count the same way.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from torchcomms import ReduceOp, TorchComm
from torchcomms.bench.exchange import Call, Exchange, RawCall, bench, timed

Pairs = list[tuple[torch.Tensor, torch.Tensor]]
ROOT = 0


def _ring(n: int) -> float:
    return 2 * (n - 1) / n


def _peer_share(n: int) -> float:
    return (n - 1) / n


class _InPlace(Exchange):
    """An operation with one buffer for input and output."""

    def allocate(self) -> None:
        self.buffer = self.case.empty(self.case.numel)

    def fill(self) -> None:
        self.buffer.copy_(self.case.sample(self.case.rank, self.case.numel))


@bench("all_reduce", _ring)
class AllReduce(_InPlace):
    accumulates = True

    def allocate(self) -> None:
        super().allocate()
        self.output = self.buffer

    def fill(self) -> None:
        self.case.poison(self.output)
        super().fill()

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.all_reduce, self.buffer, ReduceOp.SUM, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        return timed(async_op, dist.all_reduce, self.buffer, dist.ReduceOp.SUM, group, async_op)

    def results(self) -> Pairs:
        return [(self.output, self.case.total(self.case.numel))]

    def call_raw(self) -> RawCall:
        return RawCall(self.name, self.buffer, self.buffer, self.case.numel)


@bench("broadcast")
class Broadcast(_InPlace):
    rooted = True

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.broadcast, self.buffer, ROOT, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        return timed(async_op, dist.broadcast, self.buffer, ROOT, group, async_op)

    def results(self) -> Pairs:
        return [(self.buffer, self.case.sample(ROOT, self.case.numel))]

    def call_raw(self) -> RawCall:
        return RawCall(self.name, self.buffer, self.buffer, self.case.numel, ROOT)


@bench("reduce")
class Reduce(_InPlace):
    accumulates = True
    rooted = True

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.reduce, self.buffer, ROOT, ReduceOp.SUM, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        return timed(async_op, dist.reduce, self.buffer, ROOT, dist.ReduceOp.SUM, group, async_op)

    def results(self) -> Pairs:
        if self.case.rank != ROOT:
            return []  # this rank has no output
        return [(self.buffer, self.case.total(self.case.numel))]


class _Gathering(Exchange):
    """Each rank's share in, all shares out, as one tensor or as a list of views of it."""

    chunked = True

    def counts(self) -> list[int]:
        return [self.case.chunk] * self.case.size

    def allocate(self) -> None:
        self.input = self.case.empty(self.counts()[self.case.rank])
        self.output = self.case.empty(self.case.numel)
        self.outputs = list(torch.split(self.output, self.counts()))

    def fill(self) -> None:
        self.input.copy_(self.case.sample(self.case.rank, self.input.numel()))
        self.case.poison(self.output)

    def results(self) -> Pairs:
        want = [self.case.sample(r, count) for r, count in enumerate(self.counts())]
        return list(zip(torch.split(self.output, self.counts()), want, strict=True))


@bench("all_gather", _peer_share)
class AllGather(_Gathering):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.all_gather, self.outputs, self.input, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call | None:
        return timed(async_op, dist.all_gather, self.outputs, self.input, group, async_op)


@bench("all_gather_v", _peer_share)
class AllGatherV(_Gathering):
    def counts(self) -> list[int]:
        return self.case.shares()

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.all_gather_v, self.outputs, self.input, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> None:
        return None


@bench("all_gather_single", _peer_share)
class AllGatherSingle(_Gathering):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.all_gather_single, self.output, self.input, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        gather = dist.all_gather_into_tensor
        return timed(async_op, gather, self.output, self.input, group, async_op)

    def call_raw(self) -> RawCall:
        return RawCall(self.name, self.input, self.output, self.case.chunk)


class _ToRoot(_Gathering):
    rooted = True

    def results(self) -> Pairs:
        return super().results() if self.case.rank == ROOT else []


@bench("gather", _peer_share)
class Gather(_ToRoot):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        outputs = self.outputs if self.case.rank == ROOT else []
        return timed(async_op, comm.gather, outputs, self.input, ROOT, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        outputs = self.outputs if self.case.rank == ROOT else None
        return timed(async_op, dist.gather, self.input, outputs, ROOT, group, async_op)


@bench("gather_single", _peer_share)
class GatherSingle(_ToRoot):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.gather_single, self.output, self.input, ROOT, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> None:
        return None


class _Scattering(Exchange):
    """The shares of all ranks in, as one tensor or as a list of views of it; one share out."""

    chunked = True

    def counts(self) -> list[int]:
        return [self.case.chunk] * self.case.size

    def allocate(self) -> None:
        self.input = self.case.empty(self.case.numel)
        self.inputs = list(torch.split(self.input, self.counts()))
        self.output = self.case.empty(self.counts()[self.case.rank])

    def fill(self) -> None:
        self.input.copy_(self.case.sample(self.case.rank, self.case.numel))
        self.case.poison(self.output)

    def results(self) -> Pairs:
        start = sum(self.counts()[: self.case.rank])
        return [(self.output, self.case.total(self.output.numel(), start))]


@bench("reduce_scatter", _peer_share)
class ReduceScatter(_Scattering):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        op = ReduceOp.SUM
        return timed(async_op, comm.reduce_scatter, self.output, self.inputs, op, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call | None:
        op = dist.ReduceOp.SUM
        return timed(async_op, dist.reduce_scatter, self.output, self.inputs, op, group, async_op)


@bench("reduce_scatter_v", _peer_share)
class ReduceScatterV(_Scattering):
    def counts(self) -> list[int]:
        return self.case.shares()

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        op = ReduceOp.SUM
        return timed(async_op, comm.reduce_scatter_v, self.output, self.inputs, op, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> None:
        return None


@bench("reduce_scatter_single", _peer_share)
class ReduceScatterSingle(_Scattering):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        op = ReduceOp.SUM
        return timed(async_op, comm.reduce_scatter_single, self.output, self.input, op, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        arguments = (self.output, self.input, dist.ReduceOp.SUM, group)
        return timed(async_op, dist.reduce_scatter_tensor, *arguments, async_op)

    def call_raw(self) -> RawCall:
        return RawCall(self.name, self.input, self.output, self.case.chunk)


@bench("scatter", _peer_share)
class Scatter(_Scattering):
    rooted = True

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        inputs = self.inputs if self.case.rank == ROOT else []
        return timed(async_op, comm.scatter, self.output, inputs, ROOT, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        inputs = self.inputs if self.case.rank == ROOT else None
        return timed(async_op, dist.scatter, self.output, inputs, ROOT, group, async_op)

    def results(self) -> Pairs:
        start = self.case.chunk * self.case.rank
        return [(self.output, self.case.sample(ROOT, self.case.chunk, start))]


class _Swapping(Exchange):
    """A share to every rank, and a share from every rank.

    Ranks i and j send each other `count(i, j)` elements, so that both totals are `numel`.
    """

    chunked = True

    def count(self, i: int, j: int) -> int:
        return self.case.chunk

    def allocate(self) -> None:
        self.splits = [self.count(self.case.rank, j) for j in range(self.case.size)]
        self.input = self.case.empty(self.case.numel)
        self.output = self.case.empty(self.case.numel)
        self.inputs = list(torch.split(self.input, self.splits))
        self.outputs = list(torch.split(self.output, self.splits))

    def fill(self) -> None:
        self.input.copy_(self.case.sample(self.case.rank, self.case.numel))
        self.case.poison(self.output)

    def results(self) -> Pairs:
        pairs = []
        for peer, output in enumerate(self.outputs):
            start = sum(self.count(peer, j) for j in range(self.case.rank))
            pairs.append((output, self.case.sample(peer, output.numel(), start)))
        return pairs


@bench("all_to_all", _peer_share)
class AllToAll(_Swapping):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.all_to_all, self.outputs, self.inputs, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call | None:
        return timed(async_op, dist.all_to_all, self.outputs, self.inputs, group, async_op)


@bench("all_to_all_single", _peer_share)
class AllToAllSingle(_Swapping):
    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.all_to_all_single, self.output, self.input, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        return timed(
            async_op, dist.all_to_all_single, self.output, self.input, None, None, group, async_op
        )

    def call_raw(self) -> RawCall:
        return RawCall(self.name, self.input, self.output, self.case.chunk)


@bench("all_to_all_v_single", _peer_share)
class AllToAllVSingle(_Swapping):
    def count(self, i: int, j: int) -> int:
        return self.case.shares()[(i + j) % self.case.size]

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        arguments = (self.output, self.input, self.splits, self.splits)
        return timed(async_op, comm.all_to_all_v_single, *arguments, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        arguments = (self.output, self.input, self.splits, self.splits)
        return timed(async_op, dist.all_to_all_single, *arguments, group, async_op)


@bench("barrier")
class Barrier(Exchange):
    captured = False  # torch.distributed's barrier blocks the host

    def allocate(self) -> None:
        pass

    def fill(self) -> None:
        pass

    def call(self, comm: TorchComm, async_op: bool) -> Call:
        return timed(async_op, comm.barrier, async_op)

    def call_c10d(self, group: ProcessGroup, async_op: bool) -> Call:
        return timed(async_op, dist.barrier, group, async_op)

    def results(self) -> Pairs:
        return []
