"""Communicators whose members come and go: one a rank of a world, and how they find each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.cases import refused


class Party:
    """This rank's reconfigurable communicator. All ranks of the world call the same methods."""

    def __init__(self, context: Any, **options: Any) -> None:
        self.context = context
        self.comm = context.new_comm(enable_reconfigure=True, **options)
        self.uuid = 0
        self.name = f"party_{context._comm_count}"
        self._store = context.store(self.name)
        self._turns = 0

    def handles(self, ranks: Iterable[int] | None = None) -> list[str]:
        """The init handles of these ranks of the world, in this order; default all."""
        self._turns += 1
        self._store.set(f"{self._turns}/{self.context.rank}", self.comm.get_init_handle())
        ranks = range(self.context.size) if ranks is None else ranks
        return [self._store.get(f"{self._turns}/{rank}").decode() for rank in ranks]

    def form(self, *groups: list[int], **options: Any) -> list[int] | None:
        """Each group of ranks becomes connected; returns this rank's, None if it is in none."""
        self.uuid += 1
        handles = self.handles()
        mine = next((group for group in groups if self.context.rank in group), None)
        if mine is not None:
            self.reconfigure([handles[rank] for rank in mine], **options).wait()
            self.works(mine)
        return mine

    def reconfigure(self, handles: Any, uuid: int | None = None, **options: Any) -> Any:
        """With this turn's uuid, where none is given."""
        return self.comm.reconfigure(self.uuid if uuid is None else uuid, handles, **options)

    def works(self, ranks: list[int]) -> None:
        """The communicator is of these ranks of the world, in this order, and right."""
        comm, size = self.comm, len(ranks)
        assert (comm.get_rank(), comm.get_size()) == (ranks.index(self.context.rank), size)
        seen = torch.zeros(size)
        comm.all_gather_single(seen, torch.tensor([float(self.context.rank)]), False)
        assert seen.tolist() == ranks, f"the members are {seen.tolist()}, not {ranks}"
        total = torch.full((1000,), float(comm.get_rank() + 1))
        comm.all_reduce(total, ReduceOp.SUM, False)
        assert bool((total == size * (size + 1) / 2).all())
        assert not comm.is_aborted()

    def is_of_nobody(self) -> None:
        """There are no members: rank and size are -1, or refused where the device is a GPU's."""
        comm = self.comm
        assert comm.get_ranks() == []
        assert "not connected" in repr(comm)
        if self.context.backend in ("gloo", "ctran"):
            assert (comm.get_rank(), comm.get_size()) == (-1, -1)
            return
        for ask in (comm.get_rank, comm.get_size):
            with refused(torchcomms.CommFinalized, ask.__name__, "reconfigure() first"):
                ask()

    def meet(self, name: str) -> None:
        """All ranks of the world, members or not."""
        self._store.set(f"{name}/{self.context.rank}", "here")
        self._store.wait([f"{name}/{rank}" for rank in range(self.context.size)])
