"""The communicators of one rank, created and finalized by the plan in `lives`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch

import torchcomms
from torchcomms.soak.lives import Life, lives, parent_of


@dataclass(frozen=True)
class How:
    """The arguments with which all communicators are made."""

    backend: str
    device: torch.device
    hints: dict[str, str]
    limit_s: float
    store: Callable[[str], torch.distributed.Store]  # a store with separate keys for each name


@dataclass(frozen=True)
class Member:
    """This rank's communicator in a slot."""

    life: Life
    group: int
    comm: torchcomms.TorchComm


class Communicators:
    """The communicators that exist now. Every rank calls `follow` with the same steps."""

    def __init__(self, seed: int, ranks: int, rank: int, how: How) -> None:
        self._seed, self._ranks, self._rank, self._how = seed, ranks, rank, how
        self._open: dict[Life, torchcomms.TorchComm | None] = {}  # None: this rank is in no group
        self.created = 0

    def follow(self, step: int) -> dict[int, Member]:
        """Creates and finalizes communicators for `step`. Returns those of this rank by slot."""
        due = lives(self._seed, self._ranks, step)
        if set(due) != set(self._open):
            # A child needs its parent only while it is created.
            for life in due:
                if life not in self._open:
                    self._make(life)
            for life in [life for life in self._open if life not in due]:
                self._finalize(life)
        return {m.life.slot: m for life in due if (m := self._member(life)) is not None}

    def close(self) -> None:
        """Finalizes all communicators."""
        for life in list(self._open):
            self._finalize(life)

    def _member(self, life: Life) -> Member | None:
        comm, place = self._open[life], life.group_of(self._rank)
        return Member(life, place[0], comm) if comm is not None and place is not None else None

    def _make(self, life: Life) -> None:
        how, limit = self._how, timedelta(seconds=self._how.limit_s)
        if life.parent is None:
            self._open[life] = torchcomms.new_comm(
                how.backend,
                how.device,
                life.name,
                abort_process_on_timeout_or_error=False,
                timeout=limit,
                store=how.store(life.name),
                hints=how.hints,
            )
        else:
            parent = parent_of(self._seed, self._ranks, life)
            if parent not in self._open:
                self._make(parent)
            comm = self._open[parent]
            assert comm is not None
            place = life.group_of(self._rank)
            group = list(place[1]) if place is not None else []
            self._open[life] = comm.split(group, life.name, how.hints, limit)
        self.created += self._open[life] is not None

    def _finalize(self, life: Life) -> None:
        comm = self._open.pop(life)
        if comm is not None:
            comm.finalize()
