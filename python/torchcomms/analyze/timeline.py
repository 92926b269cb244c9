"""Writes the operations of ranks as a timeline in the trace event format of Perfetto.

chrome://tracing reads the format, too. A rank is a process of the timeline, a communicator a track.
An operation that has not ended is drawn until the time of the analysis. Times count from the first
operation, because a double cannot hold nanoseconds of the wall clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torchcomms.analyze.record import Dump, Operation


def to_timeline(dumps: Iterable[Dump], until_ns: int) -> dict[str, Any]:
    """Converts dumps to the JSON object of a timeline.

    Args:
        dumps: the records of the ranks.
        until_ns: the time of the analysis, Verdict.looked_ns.
    """
    dumps = list(dumps)
    zero_ns = min((op.created_ns for dump in dumps for op in dump.operations), default=0)
    events: list[dict[str, Any]] = []
    for dump in dumps:
        events += _of_rank(dump, zero_ns, until_ns)
    return {
        "displayTimeUnit": "ns",
        "otherData": {"began_unix_ns": str(zero_ns)},
        "traceEvents": events,
    }


def _of_rank(dump: Dump, zero_ns: int, until_ns: int) -> list[dict[str, Any]]:
    process = dump.process
    place = f" ({process.host}, process {process.pid}, {process.state})" if process else ""
    events = [
        _name("process_name", dump.rank, 0, f"rank {dump.rank}{place}"),
        {"ph": "M", "name": "process_sort_index", "pid": dump.rank, "tid": 0,
         "args": {"sort_index": dump.rank}},
    ]  # fmt: skip
    groups: dict[str, list[Operation]] = defaultdict(list)
    for op in dump.operations:
        groups[op.group].append(op)
    for number, (group, operations) in enumerate(groups.items(), start=1):
        events.append(_name("thread_name", dump.rank, number, group))
        for op in operations:
            events += _of_operation(op, dump.rank, number, zero_ns, until_ns)
    return events


def _of_operation(
    op: Operation, rank: int, track: int, zero_ns: int, until_ns: int
) -> list[dict[str, Any]]:
    begin_us = _us(op.created_ns - zero_ns)
    took_us = _us(max((op.ended_ns or until_ns) - op.created_ns, 0))
    common = {"name": op.name, "cat": op.group, "pid": rank, "tid": track}
    arguments = {
        "number": op.sequence,
        "state": "failed" if op.failed else "completed" if op.done else "in flight",
        "error": op.error,
        "bytes": op.bytes,
        "elements": [[list(size) for size in side] for side in (op.input_sizes, op.output_sizes)],
        "dtypes": list(op.dtypes),
        "reduce_op": op.reduce_op,
        "root": op.root,
        "peer": op.peer,
        "queued_us": _us(op.entered_ns - op.created_ns) if op.entered_ns else None,
    }
    arguments = {key: value for key, value in arguments.items() if value is not None}
    if not op.async_op:
        return [{**common, "ph": "X", "ts": begin_us, "dur": took_us, "args": arguments}]
    # Asynchronous operations overlap, so they are no nested slices of one track.
    pair = {**common, "id": f"{rank}.{track}.{op.record_id}"}
    return [
        {**pair, "ph": "b", "ts": begin_us, "args": arguments},
        {**pair, "ph": "e", "ts": begin_us + took_us},
    ]


def _us(time_ns: int) -> float:
    return time_ns / 1e3


def _name(what: str, rank: int, track: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": track, "args": {"name": text}}
