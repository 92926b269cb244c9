"""A verdict for people."""

from __future__ import annotations

from collections import defaultdict

from torchcomms.analyze.verdict import Verdict, ranks_text


def to_text(verdict: Verdict) -> str:
    """The verdict in one line, every finding, and where the ranks were last."""
    lines = [f"verdict: {verdict.summary}"]
    if verdict.culprits and not verdict.ok:
        lines.append(f"look at: {ranks_text(verdict.culprits)}")
    if len(verdict.findings) > 1:
        lines += ["", "findings:"]
        lines += [f"  {finding.kind:9} {finding.text}" for finding in verdict.findings]
    places: dict[str, list[int]] = defaultdict(list)
    for rank, place in verdict.last.items():
        places[place].append(rank)
    lines += ["", "last seen:"]
    lines += [f"  {ranks_text(ranks)}: {place}" for place, ranks in places.items()]
    return "\n".join(lines)
