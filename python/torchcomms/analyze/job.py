"""Selects the event rings of one job, and combines them to the records of its ranks."""

from __future__ import annotations

import graphlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from torchcomms.analyze.record import Dump
from torchcomms.analyze.ring import Comm, CommKey, Ring, operations_of


def newest_job(rings: Iterable[Ring]) -> list[Ring]:
    """Selects the rings of the job that started last, and all rings that share a communicator with
    it.

    The files of each job lie in a folder with the job's name. Job names are reused, so a process
    that had ended before the youngest process of the job started belongs to an earlier job.
    Exceptions are processes that share a communicator with this job, or wait for the same one,
    because clocks of other hosts may differ.
    """
    rings = list(rings)
    folders: dict[str, list[Ring]] = defaultdict(list)
    for ring in rings:
        folders[ring.path.parent.name].append(ring)
    newest = max(folders.values(), key=lambda job: max(r.process.began_ns for r in job), default=[])
    ordered = sorted(
        newest, key=lambda r: (r.process.state == "running", r.process.began_ns), reverse=True
    )
    if not ordered:
        return []
    began_ns = ordered[0].process.began_ns
    alive = [r for r in ordered if r.process.state == "running" or r.last_ns >= began_ns]
    awaited = {m.key for ring in alive for m in ring.makings}
    alive += [r for r in ordered if awaited & {m.key for m in r.makings}]
    found: list[Ring] = []
    taken: set[int] = set()
    connected = _Connected(rings)
    for ring in alive:
        joined = [r for r in connected.take_with(ring) if r.rank not in taken]
        found += joined
        taken |= {r.rank for r in joined} - {-1}
    return found


class _Connected:
    """Finds which rings are connected through common communicators."""

    def __init__(self, rings: Iterable[Ring]) -> None:
        self._taken: set[Path] = set()
        self._by_identity: dict[int, list[Ring]] = defaultdict(list)
        for ring in rings:
            for comm in ring.comms:
                if comm.identity:
                    self._by_identity[comm.identity].append(ring)

    def take_with(self, ring: Ring) -> list[Ring]:
        """Returns `ring` and all rings connected to it, except those returned before."""
        found: list[Ring] = []
        ahead = [ring]
        while ahead:
            one = ahead.pop()
            if one.path in self._taken:
                continue
            self._taken.add(one.path)
            found.append(one)
            for comm in one.comms:
                ahead += self._by_identity.pop(comm.identity, ())
        return found


def to_dumps(rings: Iterable[Ring]) -> list[Dump]:
    """One dump per rank. Of two processes with one rank, the younger one is used.

    If both are members of one communicator, the second one gets the next free rank instead.
    Processes that were never connected have no dump.
    """
    by_rank: dict[int, Ring] = {}
    joined: list[Ring] = []
    for ring in sorted(rings, key=lambda ring: ring.process.began_ns):
        if ring.rank in by_rank and _are_together(by_rank[ring.rank], ring):
            joined.append(ring)
        elif ring.rank >= 0:
            by_rank[ring.rank] = ring
    by_rank |= dict(enumerate(joined, start=max(by_rank, default=-1) + 1))
    names = _Names(by_rank)
    # If a file does not list the members, each member's own file says its rank.
    seen: dict[CommKey, dict[int, int]] = defaultdict(dict)
    for rank, ring in by_rank.items():
        for comm in ring.comms:
            seen[comm.key][comm.rank] = rank
    one_of = {comm.key: comm for ring in by_rank.values() for comm in ring.comms}
    members = {
        key: comm.members or tuple(seen[key].get(at, -1) for at in range(comm.size))
        for key, comm in one_of.items()
    }
    return [_dump(rank, ring, names, members) for rank, ring in sorted(by_rank.items())]


def _dump(rank: int, ring: Ring, names: _Names, members: dict[CommKey, tuple[int, ...]]) -> Dump:
    comms = [(names.of[comm.key], comm) for comm in ring.comms]
    return Dump(
        rank=rank,
        source=str(ring.path),
        members={name: members[comm.key] for name, comm in comms},
        operations=operations_of(ring, {comm.id: name for name, comm in comms}),
        entered={name: comm.entered for name, comm in comms},
        finished={name: comm.finished for name, comm in comms},
        backends={name: comm.backend for name, comm in comms},
        process=ring.process,
        makings=tuple(
            replace(making, name=names.next(rank, making.name)) for making in ring.makings
        ),
        places={name: comm.rank for name, comm in comms},
        identities={name: comm.identity for name, comm in comms},
        left=frozenset(name for name, comm in comms if _is_left(comm, ring)),
    )


def _are_together(one: Ring, other: Ring) -> bool:
    identities = {comm.identity for comm in one.comms} - {0}
    return any(comm.identity in identities for comm in other.comms)


def _is_left(comm: Comm, ring: Ring) -> bool:
    """Returns: whether reconfigure() has replaced this membership of the communicator."""
    return (
        comm.ended
        and comm.membership is not None
        and any(
            later.name == comm.name
            and later.membership is not None
            and later.time_ns > comm.time_ns
            for later in ring.comms
        )
    )


def _in_order(rings: Iterable[Ring], made_ns: dict[CommKey, int]) -> list[CommKey]:
    """Sorts communicators in the order in which each rank made them.

    Communicators that no rank has both of are sorted by time.
    """
    before: dict[CommKey, set[CommKey]] = {key: set() for key in made_ns}
    for ring in rings:
        keys = dict.fromkeys(comm.key for comm in ring.comms)
        for key, later in itertools.pairwise(keys):
            before[later].add(key)
    sorter = graphlib.TopologicalSorter(before)
    try:
        sorter.prepare()
    except graphlib.CycleError:  # the records contradict each other
        return sorted(made_ns, key=lambda key: made_ns[key])
    order: list[CommKey] = []
    ready: set[CommKey] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready, key=lambda key: made_ns[key])
        ready.remove(first)
        sorter.done(first)
        order.append(first)
    return order


class _Names:
    """Names communicators: of several with one name, the later ones get a number.

    The number is equal on all ranks.
    """

    def __init__(self, by_rank: dict[int, Ring]) -> None:
        self.of: dict[CommKey, str] = {}
        self._last: Counter[tuple[int, str]] = Counter()  # the last number of a name on a rank
        ranks: dict[CommKey, list[int]] = defaultdict(list)
        made_ns: dict[CommKey, int] = {}
        named: dict[CommKey, str] = {}
        for rank, ring in by_rank.items():
            for comm in ring.comms:
                ranks[comm.key].append(rank)
                named[comm.key] = comm.whole_name
                since_ns = ring.wall(comm.time_ns)
                made_ns[comm.key] = max(made_ns.get(comm.key, since_ns), since_ns)
        for key in _in_order(by_rank.values(), made_ns):
            name = named[key]
            number = 1 + max(self._last[rank, name] for rank in ranks[key])
            for rank in ranks[key]:
                self._last[rank, name] = number
            self.of[key] = self._numbered(name, number)

    def next(self, rank: int, name: str) -> str:
        """The name of a communicator that the rank is creating."""
        return self._numbered(name, 1 + self._last[rank, name])

    def _numbered(self, name: str, number: int) -> str:
        return name if number == 1 else f"{name} ({number})"
