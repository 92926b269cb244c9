"""Formats a verdict as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from torchcomms._table import printable
from torchcomms.analyze.finding import ranks_text
from torchcomms.analyze.verdict import Verdict

_MOST_NAMED = 8  # culprits that are listed with their processes
_STATES = {
    "running": "its process runs",
    "killed": "its process was killed or has crashed",
    "ended": "its process has ended, without finalize()",
    "finalized": "its process was killed or has crashed, after finalize()",
    "unknown": "the state of its process is unknown",
}


def to_text(verdict: Verdict, stacks: Mapping[int, str] | None = None) -> str:
    """The verdict in one line, its time, the job, every finding, and the last operation of each
    rank.

    Line breaks inside names are escaped.

    Args:
        verdict: the result of analyze().
        stacks: the stacks of some ranks, by rank.
    """
    lines = [f"verdict: {verdict.summary}"]
    if verdict.culprits and not verdict.ok:
        lines.append(f"look at: {_location(verdict)}")
    if (decisive := verdict.decisive) and decisive.since_ns:
        lines.append(f"since: {_since(decisive.since_ns, verdict)}")
    if verdict.processes:
        lines.append(f"job: {_job(verdict)}")
    if len(verdict.findings) > 1:
        lines += ["", "findings:"]
        lines += [f"  {finding.kind:9} {finding.text}" for finding in verdict.findings]
    for rank, text in (stacks or {}).items():
        lines += ["", f"rank {rank} is in:", *(f"  {line}" for line in text.splitlines())]
    places: dict[str, list[int]] = defaultdict(list)
    for rank, place in verdict.last.items():
        process = verdict.processes.get(rank)
        places[place + (f"; {_STATES[process.state]}" if process else "")].append(rank)
    lines += ["", "last seen:"]
    lines += [f"  {ranks_text(ranks)}: {place}" for place, ranks in places.items()]
    return "\n".join(map(printable, lines))


def _location(verdict: Verdict) -> str:
    known = {
        rank: verdict.processes[rank] for rank in verdict.culprits if rank in verdict.processes
    }
    if not known or len(known) < len(verdict.culprits) or len(known) > _MOST_NAMED:
        return ranks_text(verdict.culprits)
    return ", ".join(f"rank {rank} (process {p.pid} on {p.host})" for rank, p in known.items())


def _job(verdict: Verdict) -> str:
    """The command and start time of the job, as its smallest rank recorded them."""
    first = verdict.processes[min(verdict.processes)]
    began = datetime.fromtimestamp(first.began_ns / 1e9).astimezone()
    return f"{first.command}, which began {began:%Y-%m-%d %H:%M:%S %z}"


def _since(since_ns: int, verdict: Verdict) -> str:
    moment = datetime.fromtimestamp(since_ns / 1e9).astimezone()
    running = any(process.state == "running" for process in verdict.processes.values())
    passed_s = max(verdict.looked_ns - since_ns, 0) / 1e9
    until = "until now" if running else "until the last record"
    return f"{moment:%Y-%m-%d %H:%M:%S.%f %z}, for {passed_s:.1f} s {until}"
