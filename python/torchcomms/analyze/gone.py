"""Processes that are gone while communicators of theirs were open, and that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterable

from torchcomms.analyze.finding import Finding, have, ranks_text
from torchcomms.analyze.record import Dump


def findings(dumps: Iterable[Dump]) -> list[Finding]:
    """Where all ranks have ended on their own without finalize(), nobody is missed. Nor is a rank
    with a failed operation: that is a finding of its own, and may be why it went."""
    dumps = [dump for dump in dumps if dump.process is not None]
    failed = {dump.rank for dump in dumps if any(op.failed for op in dump.operations)}
    states = {dump.rank: dump.process.state for dump in dumps if dump.process is not None}
    killed = [rank for rank, state in states.items() if state == "killed" and rank not in failed]
    ended = [rank for rank, state in states.items() if state == "ended" and rank not in failed]
    found = []
    if killed:
        verb = "was" if len(killed) == 1 else "were"
        found.append(_finding(killed, f"{verb} killed or {have(killed)} crashed"))
    if ended and len(ended) < len(states):
        found.append(_finding(ended, f"{have(ended)} ended"))
    return found


def _finding(ranks: list[int], what: str) -> Finding:
    text = f"{ranks_text(ranks)} {what} without finalize()"
    return Finding("gone", "", "", 0, tuple(sorted(ranks)), (), text)
