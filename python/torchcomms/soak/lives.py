"""Which communicators exist at a step: a pure function of seed, number of ranks and step.

There are a few slots. What is in a slot is replaced after a number of steps of the slot's own, so
communicators are made and finalized all the time while others are in use.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# How many steps what is in a slot lives; the first two hold all ranks, the others are splits.
_PERIODS = (480, 90, 40, 60)
SLOTS = len(_PERIODS)
_WHOLE = 2


@dataclass(frozen=True)
class Life:
    """A communicator of every group: made before step `born`, finalized before step `ends`."""

    slot: int
    number: int  # how many were in this slot before
    born: int
    ends: int
    groups: tuple[tuple[int, ...], ...]  # ranks, in the order that they have in the communicator
    parent: int | None  # number of the life in slot 0 that this one is split from

    @property
    def name(self) -> str:
        return f"soak_{self.slot}_{self.number}"

    def group_of(self, rank: int) -> tuple[int, tuple[int, ...]] | None:
        """The number and the ranks of the group that has `rank`; None where it is in none."""
        for index, group in enumerate(self.groups):
            if rank in group:
                return index, group
        return None


def lives(seed: int, ranks: int, step: int) -> tuple[Life, ...]:
    """What exists while step number `step` runs, by slot."""
    return tuple(_life(seed, ranks, slot, _number(seed, slot, step)) for slot in range(SLOTS))


def parent_of(seed: int, ranks: int, life: Life) -> Life:
    """The one that `life` is split from; it may end before its child does."""
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
