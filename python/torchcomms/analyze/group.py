"""Compares the records of the ranks of one communicator."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable

from torchcomms.analyze.finding import Finding, Kind, have, ranks_text
from torchcomms.analyze.messages import Messages
from torchcomms.analyze.record import Dump, Operation, unknown_collective

# Operations in which ranks may pass different sizes. The sizes are not compared, or only on one
# side.
_UNEVEN = {"all_to_all_v_single", "all_to_all", "all_gather_v", "reduce_scatter_v"}
_ROOT_ONLY = {"scatter": "input", "gather": "output", "gather_single": "output"}


class Group:
    """One communicator, as recorded by those of its members that left a dump."""

    def __init__(
        self, name: str, members: tuple[int, ...], dumps: list[Dump], known: set[int]
    ) -> None:
        self.name = name
        self.members = members
        # Members without a record of it.
        self.without = set(members) - {-1, *(d.rank for d in dumps)}
        self.known = known  # ranks that left a record of any communicator
        self.running = {d.rank for d in dumps if d.process and d.process.state == "running"}
        # Times of different hosts are not comparable.
        hosts = {d.process.host if d.process else "" for d in dumps}
        self.one_clock = len(hosts) == 1 and "" not in hosts
        everything = {d.rank: [op for op in d.operations if op.group == name] for d in dumps}
        self.own = {r: [op for op in ops if not op.refused] for r, ops in everything.items()}
        self.refused = {r: [op for op in ops if op.refused] for r, ops in everything.items()}
        self.entered = {d.rank: d.entered.get(name, 0) for d in dumps}
        self.overwritten = {d.rank: d.overwritten(name) for d in dumps}
        self.collectives = {
            rank: {op.sequence: op for op in ops if op.is_collective}
            for rank, ops in self.own.items()
        }

    def findings(self) -> list[Finding]:
        messages = Messages(self)
        if mismatch := self._mismatch():
            return [mismatch, *messages.unposted()]
        found = [*self._behind(), *messages.unposted(), *messages.unequal()]
        return found or [*self._stuck(), *messages.posted(), *self._failed()]

    def left_behind(self, left_ranks: list[int]) -> list[Finding]:
        """Findings about ranks that hang in a communicator that `left_ranks` have left."""
        inside = {
            rank: op
            for rank in sorted(self.running)
            if (op := next((op for op in self.own[rank] if op.pending and not op.failed), None))
        }
        return [
            self.find(
                "stuck", op, [rank], [rank],
                f"rank {rank} waits in {op} of '{self.name}', which {ranks_text(left_ranks)}"
                f" {have(left_ranks)} left by reconfigure()",
            )
            for rank, op in inside.items()
        ]  # fmt: skip

    def find(
        self, kind: Kind, op: Operation, ranks: Iterable[int], waiting: Iterable[int], text: str
    ) -> Finding:
        return Finding(
            kind,
            self.name,
            op.name,
            op.sequence,
            tuple(sorted(ranks)),
            tuple(sorted(waiting)),
            text,
            self._since_ns(op, waiting),
        )

    def at(self, place: int) -> int:
        """The global rank of a rank of the group; -1 if unknown."""
        return self.members[place] if place < len(self.members) else -1

    def _since_ns(self, op: Operation, waiting: Iterable[int]) -> int:
        """The time at which the first of the waiting ranks called `op`."""
        return min(
            (
                other.created_ns
                for rank in waiting
                for other in self.own.get(rank, ())
                if (other.sequence, other.done) == (op.sequence, False)
            ),
            default=op.created_ns,
        )

    def _mismatch(self) -> Finding | None:
        """The first collective that the ranks called with different arguments, or None."""
        for number in sorted({n for ops in self.collectives.values() for n in ops}):
            seen = {rank: ops[number] for rank, ops in self.collectives.items() if number in ops}
            fingerprints = {rank: self._fingerprint(op) for rank, op in seen.items()}
            if len(set(fingerprints.values())) < 2:
                continue
            usual, count = Counter(fingerprints.values()).most_common(1)[0]
            odd = [rank for rank, value in fingerprints.items() if value != usual]
            # Without a majority it is unknown which ranks are wrong, so all are named.
            blamed = odd if count > len(fingerprints) // 2 else list(fingerprints)
            return self.find(
                "mismatch", seen[blamed[0]], blamed, set(seen) - set(blamed),
                f"operation {number} of '{self.name}' differs:"
                f" {self._differences(seen, fingerprints)}",
            )  # fmt: skip
        return None

    def _differences(
        self, seen: dict[int, Operation], fingerprints: dict[int, tuple[str, ...]]
    ) -> str:
        by_fingerprint: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for rank, value in fingerprints.items():
            by_fingerprint[value].append(rank)
        parts = sorted(by_fingerprint.items(), key=lambda item: item[1])
        return "; ".join(f"{ranks_text(ranks)}: {' '.join(value)}" for value, ranks in parts)

    def _fingerprint(self, op: Operation) -> tuple[str, ...]:
        """The properties that all ranks must agree on, as words."""
        properties = [op.name]
        if op.reduce_op is not None:
            properties.append(op.reduce_op)
        if op.root is not None:
            properties.append(f"root {op.root}")
        if op.name not in _UNEVEN:
            sides = {"input": op.input_sizes, "output": op.output_sizes}
            sides.pop(_ROOT_ONLY.get(op.name, ""), None)
            if op.name not in _ROOT_ONLY and op.input_sizes == op.output_sizes:
                sides = {"": op.input_sizes}
            for side, sizes in sides.items():
                if sizes:
                    count = sum(math.prod(size) for size in sizes)
                    properties.append(f"{side} {count} elements".strip())
        properties += op.dtypes
        return tuple(properties)

    def _behind(self) -> list[Finding]:
        """Finds ranks that have not entered a collective in which other ranks wait."""
        last = {
            rank: max(self.entered[rank], max(ops, default=0))
            for rank, ops in self.collectives.items()
        }
        furthest = max(last.values(), default=0)
        late: dict[int, list[int]] = defaultdict(list)
        for rank, number in last.items():
            if number < furthest:
                late[number].append(rank)
        pending = {
            rank: sorted(at for at, op in ops.items() if not op.done)
            for rank, ops in self.collectives.items()
        }
        found = []
        for number, ranks in sorted(late.items()):
            waiting = {
                rank: first for rank, numbers in pending.items()
                if (first := self._first_inside(rank, number + 1, numbers)) is not None
            }  # fmt: skip
            # If no rank waits, the peers have completed it, and this rank will catch up.
            if not waiting:
                continue
            # The peers may wait in a later operation than the next: the root of a broadcast does
            # not wait.
            lowest = min(at for at, _ in waiting.values())
            inside = {rank: op for rank, (at, op) in waiting.items() if at == lowest}
            # Prefers one that is recorded.
            op = min(inside.values(), key=lambda op: op.created_ns == 0)
            before = self._before(ranks[0], number)
            verb = "waits" if len(inside) == 1 else "wait"
            found.append(
                self.find(
                    "behind",
                    op,
                    ranks,
                    inside,
                    f"{ranks_text(ranks)} {have(ranks)} not entered {op} of '{self.name}'"
                    f" ({before}); {ranks_text(inside)} {verb} in it",
                )
            )
        return found

    def _first_inside(
        self, rank: int, number: int, pending: list[int]
    ) -> tuple[int, Operation] | None:
        """The first unfinished collective of `rank` from `number` on, with its number; None if
        none.

        Args:
            pending: the numbers of the unfinished collectives with a record, sorted.
        """
        overwritten = self.overwritten[rank]  # older than all records
        if (oldest := max(number, overwritten.start)) in overwritten:
            return oldest, unknown_collective(self.name, oldest)
        first = bisect.bisect_left(pending, number)
        if first == len(pending):
            return None
        return pending[first], self.collectives[rank][pending[first]]

    def _before(self, rank: int, number: int) -> str:
        op = self.collectives[rank].get(number)
        if op is None:
            return "no operation before it is recorded"
        return f"last: {'finished' if op.done else 'in'} {op}"

    def _stuck(self) -> list[Finding]:
        """Finds the first collective that all ranks have entered and some have not finished."""
        unfinished: dict[int, list[int]] = defaultdict(list)
        for rank, ops in self.collectives.items():
            for number, op in ops.items():
                if not op.done and not op.failed:
                    unfinished[number].append(rank)
            if self.overwritten[rank]:
                unfinished[self.overwritten[rank][0]].append(rank)
        if not unfinished:
            return []
        number, ranks = min(unfinished.items())
        # A recorded operation is preferred.
        known = (ops[number] for rank in ranks if number in (ops := self.collectives[rank]))
        op = next(known, None) or unknown_collective(self.name, number)
        text = (
            f"{ranks_text(ranks)} {have(ranks)} entered {op} of '{self.name}' and not finished it"
        )
        if absent := self.without - self.known:
            text += f"; {ranks_text(absent)} left no record"
        if elsewhere := self.without & self.known:
            text += f"; {ranks_text(elsewhere)} {have(elsewhere)} no record of it"
        return [self.find("stuck", op, self.without or ranks, ranks, text)]

    def _failed(self) -> list[Finding]:
        failed: dict[tuple[str, int, int | None], dict[int, Operation]] = defaultdict(dict)
        for rank, ops in self.own.items():
            for op in ops + self.refused[rank]:
                if op.failed:  # one finding per operation; each rank has its own times
                    failed[op.name, op.sequence, op.peer].setdefault(rank, op)
        return [self._failure(ops) for ops in failed.values()]

    def _failure(self, failed: dict[int, Operation]) -> Finding:
        """The finding for an operation that failed on some ranks.

        Ranks that entered it after it had failed on the first rank may be the cause; they are
        named.
        """
        op = next(iter(failed.values()))
        errors = sorted({one.error for one in failed.values() if one.error is not None})
        text = f"{op} of '{self.name}' failed on {ranks_text(failed)}"
        if errors:
            text += f" with {' and '.join(errors)}"
        over_ns = min((one.ended_ns for one in failed.values() if one.ended_ns), default=0)
        late = [r for r, one in failed.items() if self.one_clock and one.created_ns > over_ns > 0]
        if not late:
            return self.find("failed", op, failed, (), text)
        first = min(failed, key=lambda rank: failed[rank].ended_ns or math.inf)
        came_ns = min(failed[rank].created_ns for rank in late) - over_ns
        text += (
            f": {ranks_text(late)} entered it {came_ns / 1e9:.3g} s after it had failed on rank"
            f" {first}"
        )
        return self.find("failed", op, late, set(failed) - set(late), text)
