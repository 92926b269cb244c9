"""Communicators that are being created: which ranks are inside the call, and which are absent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torchcomms.analyze.finding import Finding, have, ranks_text
from torchcomms.analyze.record import Dump, Making


def findings(dumps: Iterable[Dump]) -> list[Finding]:
    """One finding for each communicator that some ranks wait to create."""
    dumps = list(dumps)
    inside = defaultdict(list)
    for dump in dumps:
        for making in dump.makings:
            inside[making.key].append((dump, making))
    return [_finding(waiting, dumps) for _, waiting in sorted(inside.items())]


def _finding(inside: list[tuple[Dump, Making]], dumps: list[Dump]) -> Finding:
    name, call, size, listed, identity = inside[0][1].key
    members = listed or _members(size, inside)
    through = {
        at
        for dump in dumps
        for at, rank in enumerate(dump.members.get(name, ()))
        if rank == dump.rank
        and len(dump.members[name]) == size
        and identity in (0, dump.identities.get(name, 0))
    }
    absent = set(range(size)) - {making.rank for _, making in inside} - through
    ranks = sorted({members[at] for at in absent} - {-1})
    waiting = sorted(dump.rank for dump, _ in inside)
    unnamed = sorted(at for at in absent if members[at] < 0)
    where = f"{call} of '{name}'"
    if absent:
        who = [ranks_text(ranks)] if ranks else []
        if unnamed:
            who.append(f"its own {ranks_text(unnamed)} of {size}")
        text = (
            f"{' and '.join(who)} {have(absent)} not entered {where};"
            f" {ranks_text(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in it"
        )
    else:
        text = f"{ranks_text(waiting)} {have(waiting)} entered {where} and not finished it"
    since_ns = min(making.since_ns for _, making in inside)
    return Finding(
        "behind" if absent else "stuck", name, call, 0, tuple(ranks if absent else waiting),
        tuple(waiting), text, since_ns,
    )  # fmt: skip


def _members(size: int, inside: list[tuple[Dump, Making]]) -> tuple[int, ...]:
    """The global ranks of the members, -1 if unknown.

    If the waiting ranks have the same places in a communicator of this size, its members are
    assumed. Without other communicators, all ranks of the job are assumed.
    """
    known = {making.rank: dump.rank for dump, making in inside}
    candidates = [
        members for dump, _ in inside for members in dump.members.values() if len(members) > 1
    ]
    for members in candidates or [tuple(range(size))]:
        if len(members) == size and all(members[at] == rank for at, rank in known.items()):
            return members
    return tuple(known.get(at, -1) for at in range(size))
