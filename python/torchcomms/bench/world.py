"""The processes that measure together, and the neutral channel between them.

The harness's own barriers and exchanges go through a Gloo group of its own, never through what is
being measured, so that they cost every backend the same.
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

LIMIT = timedelta(seconds=60)  # no single step of a measurement takes longer


@dataclass
class World:
    """This process's place among the measuring ones. One thread.

    As a context it is left together, since rank 0 may serve the store, and closed; after a failure
    it is closed at once.
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
                self.rank, self.size, LIMIT.total_seconds(), self._tell, self._all_agree
            )

    @staticmethod
    def of_launcher(purpose: str) -> World:
        """Joins the world of torchrun's variables, under keys of its own named `purpose`.

        Raises BenchError when the variables are missing.
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
        """Ends the control group and its threads. They release tensors, for which they need
        Python's lock: where Python has ended meanwhile, its older versions end the process."""
        if self._control is not None:
            with contextlib.suppress(RuntimeError):  # a failure may have closed it
                self._control.abort()
            self._control = None

    def store_of(self, name: str) -> Store:
        """Keys that nobody has used. Every rank asks in the same order."""
        self._prefixes += 1
        return PrefixStore(f"{self._prefixes}_{name}", self.store)

    def barrier(self) -> None:
        """Returns when every rank has come here."""
        if self._control is not None:
            self._control.barrier().wait()

    def align(self) -> None:
        """As barrier(); where all ranks are on one host they leave it together."""
        if self._line is not None:
            self._line.meet()
        else:
            self.barrier()

    def _tell(self, text: str) -> str:
        store = self.store_of("starting_line")
        if self.rank == 0:
            store.set("text", text)
        return store.get("text").decode()

    def _all_agree(self, value: bool) -> bool:
        return bool(self.gather(torch.tensor([int(value)])).all())

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """(n,) int64 from every rank -> (size, n), on every rank."""
        if self._control is None:
            return values.unsqueeze(0)
        rows = [torch.empty_like(values) for _ in range(self.size)]
        self._control.allgather([rows], [values]).wait()
        return torch.stack(rows)

    def agree(self, value: int) -> int:
        """Rank 0's `value`, on every rank."""
        return int(self.gather(torch.tensor([value]))[0, 0])
