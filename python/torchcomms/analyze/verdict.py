"""From the ranks' records to a verdict.

Per communicator, the ranks are compared at each sequence number. Where they were asked for
different things, that is a mismatch. Else whoever has not come as far as the others is behind. Of
the ranks that are behind, those that are in no operation themselves are what the job waits for: the
others wait, too.

Members that some have gone on from, by reconfigure(), are history, but for ranks that hang there.
"""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torchcomms.analyze import gone, making
from torchcomms.analyze.finding import Finding, Kind, have, ranks_text
from torchcomms.analyze.record import Dump, Operation, Process, unknown_collective

# Ranks may pass different amounts here: the sizes are compared pairwise, or by the root alone.
_UNEVEN = {"all_to_all_v_single", "all_to_all", "all_gather_v", "reduce_scatter_v"}
_ROOT_ONLY = {"scatter": "input", "gather": "output", "gather_single": "output"}


@dataclass(frozen=True)
class Verdict:
    """`culprits`: the ranks that the job waits for, or whose call differs; empty if none.
    `looked_ns`: when the records end: now where a process still runs."""

    ranks: tuple[int, ...]
    missing: tuple[int, ...]  # members of some communicator that left no record
    findings: tuple[Finding, ...]
    culprits: tuple[int, ...]
    summary: str
    last: dict[int, str] = field(default_factory=dict)  # where each rank was last
    processes: dict[int, Process] = field(default_factory=dict)  # of ranks, where it is known
    looked_ns: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def decisive(self) -> Finding | None:
        """The one that says what is waited for: the others follow from it."""
        about = [f for f in self.findings if set(f.ranks) & set(self.culprits)]
        return next(iter(about or self.findings), None)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def analyze(dumps: list[Dump]) -> Verdict:
    """The verdict over the dumps of some or all ranks of a job."""
    ranks = tuple(dump.rank for dump in dumps)
    left: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
    for dump in dumps:
        for name in dump.left:
            left[name, dump.members[name]].append(dump.rank)
    last = {dump.rank: _last(dump) for dump in dumps}
    dumps = [_current(dump) for dump in dumps]
    groups: dict[tuple[str, tuple[int, ...]], list[Dump]] = defaultdict(list)
    for dump in dumps:
        for name, members in dump.members.items():
            if dump.rank in members:
                groups[name, members].append(dump)
    history: list[Finding] = []
    findings = making.findings(dumps)
    awaited = {rank for finding in findings for rank in finding.ranks}
    missing = awaited.union(*(members for name, members in groups if (name, members) not in left))
    missing -= {-1, *ranks}
    for (name, members), present in sorted(groups.items()):
        group = _Group(name, members, present, known=set(ranks))
        if (name, members) in left:
            history += group.left_behind(left[name, members])
        else:
            findings += group.findings()
    if all(finding.kind == "failed" for finding in findings):
        behind = {d.rank for d in dumps if any(item in left for item in d.members.items())}
        findings += gone.findings(dump for dump in dumps if dump.rank not in behind)
    findings.sort(key=lambda finding: _ORDER.index(finding.kind))
    findings += history
    verdict = Verdict(
        ranks=ranks,
        missing=tuple(sorted(missing)),
        findings=tuple(findings),
        culprits=_culprits(findings, dumps),
        summary="nothing is wrong in these records",
        last=last,
        processes={dump.rank: dump.process for dump in dumps if dump.process is not None},
        looked_ns=_looked_ns(dumps),
    )
    told = verdict.decisive.text if verdict.decisive else verdict.summary
    said = bool(missing) and f"{ranks_text(missing)} left no record" in told
    absent = f"; no record of {ranks_text(missing)}" if missing and not said else ""
    return replace(verdict, summary=told + absent)


_ORDER: list[Kind] = ["mismatch", "behind", "message", "stuck", "gone", "failed"]


def _culprits(findings: list[Finding], dumps: list[Dump]) -> tuple[int, ...]:
    mismatched = {r for f in findings if f.kind == "mismatch" for r in f.ranks}
    if mismatched:
        return tuple(sorted(mismatched))
    behind = {r for f in findings if f.kind in ("behind", "message") for r in f.ranks}
    if not behind:  # whom everybody waits for may have gone, and left nothing
        behind = {r for f in findings if f.kind == "stuck" for r in f.ranks if r not in f.waiting}
        behind |= {r for f in findings if f.kind == "gone" for r in f.ranks}
    inside = {d.rank for d in dumps if d.makings or _pending(d)}
    # Where all that are behind are inside something, they wait for each other.
    return tuple(sorted(behind - inside or behind))


def _looked_ns(dumps: list[Dump]) -> int:
    if any(dump.process and dump.process.state == "running" for dump in dumps):
        return time.time_ns()
    times = [max(op.created_ns, op.ended_ns) for dump in dumps for op in dump.operations]
    times += [making.since_ns for dump in dumps for making in dump.makings]
    return max(times, default=0)


def _current(dump: Dump) -> Dump:
    """Without the communicators that it has left."""
    if not dump.left:
        return dump
    return replace(
        dump,
        members={name: of for name, of in dump.members.items() if name not in dump.left},
        operations=tuple(op for op in dump.operations if op.group not in dump.left),
    )


def _pending(dump: Dump) -> list[Operation]:
    """What it is in, oldest first."""
    overwritten = [
        unknown_collective(name, numbers[0])
        for name in dump.members
        if (numbers := dump.overwritten(name))
    ]
    return overwritten + [op for op in dump.operations if op.pending]


def _last(dump: Dump) -> str:
    if dump.makings:
        return f"in {dump.makings[0].call} of '{dump.makings[0].name}'"
    if not (candidates := _pending(_current(dump))[:1] or dump.operations[-1:]):
        return "nothing recorded"
    op = candidates[0]
    state = "failed in" if op.failed else "in" if not op.done else "finished"
    return f"{state} {op} of '{op.group}'" + (f" with {op.error}" if op.error else "")


def _amount(sizes: tuple[tuple[int, ...], ...], op: Operation) -> str:
    return " ".join([f"{sum(math.prod(size) for size in sizes)} elements", *op.dtypes])


class _Group:
    """One communicator, seen by those of its members that left a dump."""

    def __init__(
        self, name: str, members: tuple[int, ...], dumps: list[Dump], known: set[int]
    ) -> None:
        self.name = name
        self.members = members
        self.without = set(members) - {-1, *(d.rank for d in dumps)}  # records of it
        self.known = known  # ranks that left any record
        self.running = {d.rank for d in dumps if d.process and d.process.state == "running"}
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
        if mismatch := self._mismatch():
            return [mismatch, *self._messages()]
        found = [*self._behind(), *self._messages(), *self._unequal_messages()]
        return found or [*self._stuck(), *self._failed()]

    def left_behind(self, leavers: list[int]) -> list[Finding]:
        """Ranks that hang where others, `leavers`, have gone on."""
        inside = {
            rank: op
            for rank in sorted(self.running)
            if (op := next((op for op in self.own[rank] if op.pending and not op.failed), None))
        }
        return [
            self._find(
                "stuck", op, [rank], [rank],
                f"rank {rank} waits in {op} of '{self.name}', which {ranks_text(leavers)}"
                f" {have(leavers)} left by reconfigure()",
            )
            for rank, op in inside.items()
        ]  # fmt: skip

    def _find(
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

    def _since_ns(self, op: Operation, waiting: Iterable[int]) -> int:
        """When the first of those that wait in `op` called it."""
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
        """The first collective for which the ranks were asked for different things."""
        for number in sorted({n for ops in self.collectives.values() for n in ops}):
            seen = {rank: ops[number] for rank, ops in self.collectives.items() if number in ops}
            prints = {rank: self._fingerprint(op) for rank, op in seen.items()}
            if len(set(prints.values())) < 2:
                continue
            usual, count = Counter(prints.values()).most_common(1)[0]
            odd = [rank for rank, value in prints.items() if value != usual]
            # Two halves accuse each other: nobody can say who is right.
            blamed = odd if count > len(prints) // 2 else list(prints)
            return self._find(
                "mismatch", seen[blamed[0]], blamed, set(seen) - set(blamed),
                f"operation {number} of '{self.name}' differs: {self._differences(seen, prints)}",
            )  # fmt: skip
        return None

    def _differences(self, seen: dict[int, Operation], prints: dict[int, tuple[str, ...]]) -> str:
        by_print: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for rank, value in prints.items():
            by_print[value].append(rank)
        parts = sorted(by_print.items(), key=lambda item: item[1])
        return "; ".join(f"{ranks_text(ranks)}: {' '.join(value)}" for value, ranks in parts)

    def _fingerprint(self, op: Operation) -> tuple[str, ...]:
        """What all ranks must agree on, in words."""
        words = [op.name]
        if op.reduce_op is not None:
            words.append(op.reduce_op)
        if op.root is not None:
            words.append(f"root {op.root}")
        if op.name not in _UNEVEN:
            sides = {"input": op.input_sizes, "output": op.output_sizes}
            sides.pop(_ROOT_ONLY.get(op.name, ""), None)
            if op.name not in _ROOT_ONLY and op.input_sizes == op.output_sizes:
                sides = {"": op.input_sizes}
            for side, sizes in sides.items():
                if sizes:
                    count = sum(math.prod(size) for size in sizes)
                    words.append(f"{side} {count} elements".strip())
        words += op.dtypes
        return tuple(words)

    def _behind(self) -> list[Finding]:
        """Ranks that have not entered what others are in."""
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
            # What the others are through with waits for nobody: this rank will catch up.
            if not waiting:
                continue
            # In a later one than the next, perhaps: whoever sends a broadcast is through with it.
            lowest = min(at for at, _ in waiting.values())
            inside = {rank: op for rank, (at, op) in waiting.items() if at == lowest}
            op = min(inside.values(), key=lambda op: op.created_ns == 0)  # better one that is known
            before = self._before(ranks[0], number)
            verb = "waits" if len(inside) == 1 else "wait"
            found.append(
                self._find(
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
        """Of those from `number` on that the rank is in, and that one's number. `pending`: of those
        that are recorded."""
        overwritten = self.overwritten[rank]  # older than what is recorded
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
        """Operations that all ranks have entered and some have not finished."""
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
        # Better one that is known.
        known = (ops[number] for rank in ranks if number in (ops := self.collectives[rank]))
        op = next(known, None) or unknown_collective(self.name, number)
        text = (
            f"{ranks_text(ranks)} {have(ranks)} entered {op} of '{self.name}' and not finished it"
        )
        if absent := self.without - self.known:
            text += f"; {ranks_text(absent)} left no record"
        if elsewhere := self.without & self.known:
            text += f"; {ranks_text(elsewhere)} {have(elsewhere)} no record of it"
        return [self._find("stuck", op, self.without or ranks, ranks, text)]

    def _failed(self) -> list[Finding]:
        failed: dict[tuple[str, int, int | None], tuple[Operation, list[int]]] = {}
        for rank, ops in self.own.items():
            for op in ops + self.refused[rank]:
                if op.failed:  # each rank has times of its own
                    key = (op.name, op.sequence, op.peer)
                    failed.setdefault(key, (op, []))[1].append(rank)
        return [
            self._find(
                "failed", op, ranks, (), f"{op} of '{self.name}' failed on {ranks_text(ranks)}"
            )
            for op, ranks in failed.values()
        ]

    def _unequal_messages(self) -> list[Finding]:
        """Sends and receives that are each other's partner, and of different size or type."""
        sides: dict[int, dict[str, tuple[int, Operation]]] = defaultdict(dict)
        for rank, ops in self.own.items():
            for op in ops:
                if op.is_message:
                    sides[op.sequence][op.name] = (rank, op)
        found = []
        for pair in sides.values():
            if len(pair) < 2:
                continue
            (sender, send), (receiver, recv) = pair["send"], pair["recv"]
            sent, wanted = _amount(send.input_sizes, send), _amount(recv.output_sizes, recv)
            if sent == wanted or (send.done and recv.done):
                continue
            found.append(
                self._find(
                    "mismatch",
                    send,
                    [sender, receiver],
                    [],
                    f"a message in '{self.name}' differs: rank {sender} sends {sent},"
                    f" rank {receiver} receives {wanted}",
                )
            )
        return found

    def _messages(self) -> list[Finding]:
        """Sends and receives that wait for a partner which has not posted its side."""
        posted = {
            (op.sequence, op.name) for ops in self.own.values() for op in ops if op.is_message
        }
        found = []
        for rank, ops in sorted(self.own.items()):
            for op in ops:
                if not op.is_message or op.done or op.peer is None:
                    continue
                partner = self.members[op.peer] if op.peer < len(self.members) else -1
                answer = "recv" if op.name == "send" else "send"
                if partner < 0 or (op.sequence, answer) in posted:
                    continue
                why = (
                    f"for which rank {partner} has posted no {answer}" if partner in self.own
                    else f"of rank {partner}, which left no record"
                )  # fmt: skip
                found.append(
                    self._find(
                        "message", op, [partner], [rank],
                        f"rank {rank} waits in {op} of '{self.name}', {why}",
                    )
                )  # fmt: skip
        return found
