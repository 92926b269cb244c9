"""Derives a verdict from the records of the ranks.

The ranks of each communicator are compared at each sequence number. If they called different
operations, that is a mismatch. Otherwise, a rank that has not entered the operation of its peers is
behind. The job waits for those ranks that are behind and not inside an operation themselves; the
other ranks only wait as well.

Memberships that some ranks have left by reconfigure() are ignored, except for ranks that hang
there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torchcomms.analyze import gone, making
from torchcomms.analyze.finding import Finding, Kind, ranks_text
from torchcomms.analyze.group import Group
from torchcomms.analyze.record import Dump, Operation, Process, unknown_collective


@dataclass(frozen=True)
class Verdict:
    """The result of the analysis.

    Attributes:
        ranks: the ranks with a record.
        missing: members of some communicator that left no record.
        findings: what is wrong, the decisive kinds first.
        culprits: the ranks that the job waits for, or whose call differs; empty if none.
        summary: the verdict in one sentence.
        last: the last operation of each rank, in words.
        processes: the processes of ranks, if known.
        looked_ns: the time at which the records end, in ns of the wall clock; now if a process
            runs.
    """

    ranks: tuple[int, ...]
    missing: tuple[int, ...]  # members of some communicator without a record
    findings: tuple[Finding, ...]
    culprits: tuple[int, ...]
    summary: str
    last: dict[int, str] = field(default_factory=dict)  # the last operation of each rank
    processes: dict[int, Process] = field(default_factory=dict)  # by rank, if known
    looked_ns: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def decisive(self) -> Finding | None:
        """The finding that names what the job waits for; the other findings follow from it."""
        about = [f for f in self.findings if set(f.ranks) & set(self.culprits)]
        return next(iter(about or self.findings), None)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


# A job that makes progress shows these findings too, as records are not of one moment.
_PASSING: set[Kind] = {"behind", "message", "stuck"}


def analyze(dumps: list[Dump], before: Verdict | None = None) -> Verdict:
    """Derives the verdict from the dumps of some or all ranks of a job.

    Args:
        dumps: one per rank.
        before: the verdict over earlier dumps of the same ranks. A rank that was behind then, and
            is not now or is behind elsewhere, was making progress: that is no finding.
    """
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
        group = Group(name, members, present, known=set(ranks))
        if (name, members) in left:
            history += group.left_behind(left[name, members])
        else:
            findings += group.findings()
    behind = {d.rank for d in dumps if any(item in left for item in d.members.items())}
    if before is not None:
        seen = {_key(finding) for finding in before.findings}
        findings = [f for f in findings if f.kind not in _PASSING or _key(f) in seen]
    findings += gone.findings([d for d in dumps if d.rank not in behind], findings)
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
    conclusion = verdict.decisive.text if verdict.decisive else verdict.summary
    names_missing = bool(missing) and f"{ranks_text(missing)} left no record" in conclusion
    absent = f"; no record of {ranks_text(missing)}" if missing and not names_missing else ""
    return replace(verdict, summary=conclusion + absent)


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.comm, finding.operation, finding.sequence, finding.ranks


_ORDER: list[Kind] = ["mismatch", "behind", "message", "gone", "stuck", "failed"]


def _culprits(findings: list[Finding], dumps: list[Dump]) -> tuple[int, ...]:
    mismatched = {r for f in findings if f.kind == "mismatch" for r in f.ranks}
    if mismatched:
        return tuple(sorted(mismatched))
    behind = {r for f in findings if f.kind in ("behind", "message") for r in f.ranks}
    if not behind:  # the rank that the job waits for may have exited without a record
        behind = {r for f in findings if f.kind == "stuck" for r in f.ranks if r not in f.waiting}
        behind |= {r for f in findings if f.kind == "gone" for r in f.ranks}
        # Ranks that entered an operation after it had failed on their peers.
        behind |= {r for f in findings if f.kind == "failed" and f.waiting for r in f.ranks}
    inside = {d.rank for d in dumps if d.makings or _pending(d)} - gone.exited_before_peers(dumps)
    # If all ranks that are behind are inside an operation, they wait for each other.
    return tuple(sorted(behind - inside or behind))


def _looked_ns(dumps: list[Dump]) -> int:
    if any(dump.process and dump.process.state == "running" for dump in dumps):
        return time.time_ns()
    times = [max(op.created_ns, op.ended_ns) for dump in dumps for op in dump.operations]
    times += [making.since_ns for dump in dumps for making in dump.makings]
    return max(times, default=0)


def _current(dump: Dump) -> Dump:
    """The dump without the memberships that the rank has left."""
    if not dump.left:
        return dump
    return replace(
        dump,
        members={name: of for name, of in dump.members.items() if name not in dump.left},
        operations=tuple(op for op in dump.operations if op.group not in dump.left),
    )


def _pending(dump: Dump) -> list[Operation]:
    """The operations in flight, oldest first."""
    overwritten = [
        unknown_collective(name, numbers[0])
        for name in dump.members
        if (numbers := dump.overwritten(name))
    ]
    return overwritten + [op for op in dump.operations if op.pending]


def _last(dump: Dump) -> str:
    if dump.makings:
        return f"in {dump.makings[0].call} of '{dump.makings[0].name}'"
    pending = [op for op in _pending(_current(dump)) if not op.failed]
    if not (candidates := pending[:1] or dump.operations[-1:]):
        return "nothing recorded"
    op = candidates[0]
    state = "failed in" if op.failed else "in" if not op.done else "finished"
    return f"{state} {op} of '{op.group}'" + (f" with {op.error}" if op.error else "")
