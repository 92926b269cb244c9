"""Finds processes that exited while communicators of theirs were open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchcomms.analyze.finding import Finding, have, ranks_text
from torchcomms.analyze.record import Dump


def findings(dumps: Sequence[Dump], found: Iterable[Finding]) -> list[Finding]:
    """Findings about exited processes that explain a hang or that no other finding covers.

    Returns nothing if `found` already shows whom the job waits for. For ranks that hang together,
    only the ranks that exited while others run are reported: they are the cause. If all ranks ended
    on their own without finalize(), none is reported. A rank with a failed operation is not
    reported: the failure is a finding already, and may be why the process ended.
    """
    kinds = {finding.kind for finding in found}
    if kinds - {"failed", "stuck"}:
        return []
    failed = {dump.rank for dump in dumps if any(op.failed for op in dump.operations)}
    states = {dump.rank: dump.process.state for dump in dumps if dump.process is not None}
    if "stuck" in kinds:
        hang = {rank for finding in found for rank in finding.waiting} & exited_before_peers(dumps)
        states = {rank: state for rank, state in states.items() if rank in hang}
    killed = [rank for rank, state in states.items() if state == "killed" and rank not in failed]
    ended = [rank for rank, state in states.items() if state == "ended" and rank not in failed]
    all_ended = len(ended) == len(states) and "stuck" not in kinds
    exit_findings = []
    if killed:
        verb = "was" if len(killed) == 1 else "were"
        exit_findings.append(_finding(killed, f"{verb} killed or {have(killed)} crashed"))
    if ended and not all_ended:
        exit_findings.append(_finding(ended, f"{have(ended)} ended"))
    return exit_findings


def exited_before_peers(dumps: Iterable[Dump]) -> set[int]:
    """The ranks whose processes exited while others run.

    Empty if no process runs, as after a kill of the whole job.
    """
    states = {dump.rank: dump.process.state for dump in dumps if dump.process is not None}
    if "running" not in states.values():
        return set()
    return {rank for rank, state in states.items() if state not in ("running", "unknown")}


def _finding(ranks: list[int], what: str) -> Finding:
    text = f"{ranks_text(ranks)} {what} without finalize()"
    return Finding("gone", "", "", 0, tuple(sorted(ranks)), (), text)
