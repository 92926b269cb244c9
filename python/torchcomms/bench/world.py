"""The processes that measure together, and the control channel between them.

The harness's own barriers and exchanges use a separate Gloo group, never a measured backend, so
that they cost every backend the same.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from torchcomms.bench.errors import BenchError
from torchcomms.bench.starting_line import StartingLine

LIMIT = timedelta(seconds=60)  # timeout of every single step of a measurement


@dataclass
class World:
    """The rank of this process among the measuring ones. For one thread.

    As a context manager, it ends with a barrier, because rank 0 may serve the store, and is closed.
    After a failure it is closed at once.
    """

    rank: int
    size: int
    store: Store
    _control: Any = field(init=False, default=None)
    _line: StartingLine | None = field(init=False, default=None)
    _prefixes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.size > 1:
            prefixed = PrefixStore("control", self.store)
            self._control = dist.ProcessGroupGloo(prefixed, self.rank, self.size, LIMIT)
            self._line = StartingLine.make(
                self.rank, self.size, LIMIT.total_seconds(), self._broadcast_text, self._all_agree
            )

    @staticmethod
    def of_launcher(purpose: str) -> World:
        """Joins the world of torchrun's variables, under store keys with the prefix `purpose`.

        Raises:
            BenchError: variables are missing.
        """
        needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
        missing = [name for name in needed if not os.environ.get(name, "").strip()]
        if missing:
            raise BenchError(f"{', '.join(missing)} not set: start this with torchrun")
        store, rank, size = next(rendezvous("env://", timeout=LIMIT))
        return World(rank, size, PrefixStore(purpose, store))

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.barrier()
        finally:
            self.close()

    def close(self) -> None:
        """Ends the control group and its threads.

        The threads release tensors and need the GIL for that. If the interpreter has ended
        meanwhile, older Python versions abort the process.
        """
        if self._control is not None:
            with contextlib.suppress(RuntimeError):  # it may be closed after a failure
                self._control.abort()
            self._control = None

    def store_of(self, name: str) -> Store:
        """A store with unused keys. Every rank calls this in the same order."""
        self._prefixes += 1
        return PrefixStore(f"{self._prefixes}_{name}", self.store)

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        if self._control is not None:
            self._control.barrier().wait()

    def align(self) -> None:
        """A barrier that ranks leave at the same time if all are on one host."""
        if self._line is not None:
            self._line.meet()
        else:
            self.barrier()

    def _broadcast_text(self, text: str) -> str:
        store = self.store_of("starting_line")
        if self.rank == 0:
            store.set("text", text)
        return store.get("text").decode()

    def _all_agree(self, value: bool) -> bool:
        return bool(self.gather(torch.tensor([int(value)])).all())

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Gathers (n,) int64 from every rank. Returns (size, n) on every rank."""
        if self._control is None:
            return values.unsqueeze(0)
        rows = [torch.empty_like(values) for _ in range(self.size)]
        self._control.allgather([rows], [values]).wait()
        return torch.stack(rows)

    def agree(self, value: int) -> int:
        """Returns rank 0's `value` on every rank."""
        return int(self.gather(torch.tensor([value]))[0, 0])
