"""torch.distributed's own Gloo process group, driven as a cell needs it: the baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, distributed_c10d

from torchcomms.drill.buffers import Buffers, Shape
from torchcomms.drill.side import Pending


class Baseline:
    """A process group without the global state of torch.distributed."""

    def __init__(self, name: str, store: Store, place: tuple[int, int], limit_s: float) -> None:
        self.name = name
        self.rank, self.size = place
        self._store = PrefixStore(name, store)
        self._limit = timedelta(seconds=limit_s)
        self._store.set_timeout(self._limit)
        self._group: Any = dist.ProcessGroupGloo(self._store, self.rank, self.size, self._limit)
        self._children = 0

    def start(
        self,
        op: str,
        shape: Shape = Shape(),  # noqa: B008
        *,
        async_op: bool = True,
        limit_s: float | None = None,
    ) -> Pending:
        buffers = Buffers(op, self.rank, self.size, shape)
        limit = self._limit if limit_s is None else timedelta(seconds=limit_s)
        work = _CALLS[op](self._group, buffers, limit)
        if not async_op:
            work.wait()
        return Pending(work.wait, buffers)

    def split(self, ranks: Sequence[int], limit_s: float) -> Baseline | None:
        self._children += 1
        if self.rank not in ranks:
            return None
        name = f"{self.name}/{self._children}"
        return Baseline(name, self._store, (list(ranks).index(self.rank), len(ranks)), limit_s)

    def finalize(self) -> None:
        with contextlib.suppress(RuntimeError):  # it may be closed after a failure
            self._group.abort()
        self._group = None


def _options(kind: type, limit: timedelta, b: Buffers, *fields: str) -> object:
    values = {
        "rootRank": b.shape.root, "reduceOp": getattr(dist.ReduceOp, b.shape.reduce_op.upper())
    }  # fmt: skip
    options = kind()
    options.timeout = limit
    for name in fields:
        setattr(options, name, values[name])
    return options


def _parts(b: Buffers, of: str) -> list[Any]:
    return list(getattr(b, of).chunk(b.size))


def _at_root(slots: list[Any]) -> list[Any]:
    """The nested lists that only the root of an operation passes."""
    return [slots] if slots else []


_ROOT, _OP = "rootRank", "reduceOp"
# Functions of (group, buffers, timeout) that return the work.
_CALLS: dict[str, Callable[[Any, Buffers, timedelta], Any]] = {
    "barrier": lambda g, b, t: g.barrier(_options(dist.BarrierOptions, t, b)),
    "all_reduce": lambda g, b, t: g.allreduce(
        [b.input], _options(dist.AllreduceOptions, t, b, _OP)
    ),
    "broadcast": lambda g, b, t: g.broadcast(
        [b.input], _options(dist.BroadcastOptions, t, b, _ROOT)
    ),
    "reduce": lambda g, b, t: g.reduce([b.input], _options(dist.ReduceOptions, t, b, _ROOT, _OP)),
    "all_gather_single": lambda g, b, t: g.allgather(
        [_parts(b, "output")],
        [b.input],
        _options(distributed_c10d.AllgatherOptions, t, b),
    ),
    "reduce_scatter_single": lambda g, b, t: g.reduce_scatter(
        [b.output], [_parts(b, "input")], _options(dist.ReduceScatterOptions, t, b, _OP)
    ),
    "all_to_all_single": lambda g, b, t: g.alltoall_base(
        b.output, b.input, [], [], _options(dist.AllToAllOptions, t, b)
    ),
    "gather": lambda g, b, t: g.gather(
        _at_root(b.slots(b.output)), [b.input], _options(dist.GatherOptions, t, b, _ROOT)
    ),
    "scatter": lambda g, b, t: g.scatter(
        [b.output], _at_root(b.slots(b.input)), _options(dist.ScatterOptions, t, b, _ROOT)
    ),
    "send": lambda g, b, t: g.send([b.input], b.shape.root, 0),
    "recv": lambda g, b, t: g.recv([b.output], b.shape.root, 0),
}
