"""``TorchComm.split``, with the arguments of all generations of the API."""

import datetime
import itertools
from collections.abc import Sequence
from typing import TypeGuard
from weakref import WeakKeyDictionary

from torchcomms._arguments import (
    require_groups,
    require_hints,
    require_limit,
    require_ranks,
    wrong_type,
)
from torchcomms._comms import InvalidArgument, TorchComm

_counters: "WeakKeyDictionary[TorchComm, itertools.count[int]]" = WeakKeyDictionary()


def _is_groups(ranks: object) -> TypeGuard[Sequence[Sequence[int]]]:
    """Returns: whether `ranks` is a list of groups instead of a list of ranks."""
    if not isinstance(ranks, list | tuple) or not ranks:
        return False
    return all(isinstance(group, list | tuple | set | range) for group in ranks)


def _own_group(comm: TorchComm, groups: Sequence[Sequence[int]]) -> list[int]:
    """The group that contains this rank; empty if there is none."""
    lists = require_groups("split", "rank_groups", groups, comm.get_size)
    own = [group for group in lists if comm.get_rank() in group]
    if len(own) > 1:
        raise InvalidArgument(
            f"split on '{comm.get_name()}': rank {comm.get_rank()} is in {len(own)} of the"
            " rank_groups; groups must not overlap"
        )
    return own[0] if own else []


def split(
    self: TorchComm,
    ranks: Sequence[int] | Sequence[Sequence[int]] | None = None,
    name: str | None = None,
    hints: dict[str, str] | None = None,
    timeout: datetime.timedelta | float | None = None,
    *,
    rank_groups: Sequence[Sequence[int]] | None = None,
) -> TorchComm | None:
    """Makes a communicator of some of the ranks of this one. Collective: every rank calls it.

    Args:
        ranks: ranks of the group, in the order of the new ranks; [] takes no part.
        name: name of the child; None: the parent's name and a counter.
        hints: dict[str, str] of the child; nothing is inherited.
        timeout: timeout of the split and of the child's operations. None: the parent's timeout for
            the split, TORCHCOMM_TIMEOUT_SECONDS for the child's operations.
        rank_groups: older form of `ranks`: disjoint groups, of which the group that contains this
            rank is used. Such groups may also be passed as `ranks`.
    Returns:
        TorchComm, or None if this rank is in no group.
    Raises:
        InvalidArgument: a rank out of range or twice, or this rank missing from a non-empty list;
            nothing was created.
        TypeError: an argument of another type; nothing was created.
    Cost: one connection set-up among the group.
    """
    if (ranks is None) == (rank_groups is None):
        raise TypeError("split() takes either 'ranks' or 'rank_groups'")
    groups = ranks if _is_groups(ranks) else rank_groups
    if groups is not None:
        ranks = _own_group(self, groups)
    if name is not None and not isinstance(name, str):
        raise wrong_type("split", "name", "str or None", name)
    own = require_ranks("split", "ranks", ranks, self.get_size)
    if hints is not None:
        require_hints("split", hints)
    if timeout is not None:
        require_limit("split", timeout)
    if name is None:
        counter = _counters.setdefault(self, itertools.count())
        name = f"{self.get_name()}_split{next(counter)}"
    child = self._split(own, name, hints, timeout)
    # A rank in no group has taken part in the split all the same.
    return None if groups is not None and not own else child
