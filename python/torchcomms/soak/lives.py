"""Defines which communicators exist at a step: a pure function of seed, number of ranks and step.

There are a few slots. Each slot replaces its communicators after its own number of steps. So
communicators are created and finalized all the time while others are in use.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# The number of steps that a slot keeps its communicators. The first two slots contain all ranks,
# the others are splits.
_PERIODS = (480, 90, 40, 60)
SLOTS = len(_PERIODS)
_WHOLE = 2


@dataclass(frozen=True)
class Life:
    """The communicators of one slot: created before step `born`, finalized before step `ends`."""

    slot: int
    number: int  # the number of earlier lives of the slot
    born: int
    ends: int
    groups: tuple[tuple[int, ...], ...]  # the ranks of each group, in the communicator's rank order
    parent: int | None  # the number of the life in slot 0 that is split

    @property
    def name(self) -> str:
        return f"soak_{self.slot}_{self.number}"

    def group_of(self, rank: int) -> tuple[int, tuple[int, ...]] | None:
        """The index and the ranks of the group that contains `rank`; None if there is none."""
        for index, group in enumerate(self.groups):
            if rank in group:
                return index, group
        return None


def lives(seed: int, ranks: int, step: int) -> tuple[Life, ...]:
    """The lives that exist while step `step` runs, by slot."""
    return tuple(_life(seed, ranks, slot, _number(seed, slot, step)) for slot in range(SLOTS))


def parent_of(seed: int, ranks: int, life: Life) -> Life:
    """The life that `life` is split from. It may end earlier than its child."""
    assert life.parent is not None
    return _life(seed, ranks, 0, life.parent)


def _offset(seed: int, slot: int) -> int:
    return random.Random(f"{seed} slot {slot}").randrange(_PERIODS[slot])


def _number(seed: int, slot: int, step: int) -> int:
    return (step + _offset(seed, slot)) // _PERIODS[slot]


def _life(seed: int, ranks: int, slot: int, number: int) -> Life:
    begins = number * _PERIODS[slot] - _offset(seed, slot)
    born, ends = max(begins, 0), begins + _PERIODS[slot]
    if slot < _WHOLE:
        return Life(slot, number, born, ends, (tuple(range(ranks)),), None)
    chance = random.Random(f"{seed} life {slot} {number}")
    order = chance.sample(range(ranks), ranks)
    cut = chance.randint(1, ranks)
    rest = (tuple(order[cut:]),) if slot == SLOTS - 1 and cut < ranks else ()
    return Life(slot, number, born, ends, (tuple(order[:cut]), *rest), _number(seed, 0, born))
