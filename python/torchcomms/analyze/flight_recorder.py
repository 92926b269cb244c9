"""Writes records in the format of PyTorch's flight recorder, for tools such as `torchfrtrace`."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchcomms import _output
from torchcomms._dtype import for_recorder
from torchcomms.analyze.record import Dump, Operation

PREFIX = "rank_"
_VERSION = "2.10"  # version of the layout, as PyTorch's reader counts
# The reader's names of operations; it rejects unknown names.
_PROFILING_NAMES = {"batch_op_issue": "coalesced", "gather_single": "gather"}


def to_flight_recorder(dump: Dump) -> dict[str, Any]:
    """Converts a dump to the layout of FlightRecorderHook.dump_json(). Sizes are element counts."""
    groups = list(dump.members)
    return {
        "version": _VERSION,
        "global_rank": dump.rank,
        "pg_config": {
            name: {
                "name": name,
                "desc": dump.backends.get(name, ""),
                "ranks": str([rank for rank in members if rank >= 0]),
            }
            for name, members in dump.members.items()
        },
        "pg_status": {str(number): _status(dump, name) for number, name in enumerate(groups)},
        "entries": [
            _entry(dump, op, groups.index(op.group))
            for op in dump.operations
            if op.group in dump.members
        ],
    }


def write_flight_recorder(dumps: Iterable[Dump], folder: Path) -> list[Path]:
    """Writes one pickle per rank, `rank_<number>`, into `folder`, which is created if missing.

    Returns:
        The paths of the files.
    Raises:
        CommError: a file cannot be written.
    """
    written = []
    for dump in dumps:
        path = folder / f"{PREFIX}{dump.rank}"
        _output.write(path, pickle.dumps(to_flight_recorder(dump), protocol=2))
        written.append(path)
    return written


def _status(dump: Dump, group: str) -> dict[str, str]:
    collectives = [op for op in dump.operations if op.group == group and op.is_collective]
    begun = max([dump.entered.get(group, 0), *(op.sequence for op in collectives)])
    done = max((op.sequence for op in collectives if op.done), default=0)
    return {
        "last_enqueued_collective": str(begun),
        "last_started_collective": str(begun),
        "last_completed_collective": str(done),
    }


def _entry(dump: Dump, op: Operation, group: int) -> dict[str, Any]:
    backend = dump.backends.get(op.group, "")
    profiling_name = f"{backend}:{_PROFILING_NAMES.get(op.name, op.name)}"
    if op.is_message and op.peer is not None:
        me = dump.place_in(op.group)
        profiling_name += f" {me}{'->' if op.name == 'send' else '<-'}{op.peer}"
    began_ns = op.entered_ns or op.created_ns
    dtypes = [for_recorder(name) for name in op.dtypes]
    entry = {
        "record_id": op.record_id,
        "pg_id": group,
        "process_group": (op.group, backend),
        "thread_name": "",
        "thread_id": op.thread,
        "collective_seq_id": op.sequence,
        "p2p_seq_id": 0,
        "op_id": op.op_id,
        "profiling_name": profiling_name,
        "time_created_ns": op.created_ns,
        "input_sizes": [list(size) for size in op.input_sizes],
        "output_sizes": [list(size) for size in op.output_sizes],
        "input_dtypes": dtypes * len(op.input_sizes),
        "output_dtypes": dtypes * len(op.output_sizes),
        "state": op.state,
        "time_discovered_started_ns": began_ns,
        "time_discovered_completed_ns": op.ended_ns or None,
        "retired": op.done,
        "timeout_ms": 0,
        "is_p2p": False,
        "operation": op.name,
        "failed": op.failed,
    }
    if op.done:
        entry["duration_ms"] = max(op.ended_ns - began_ns, 1) / 1e6
    for key in ("reduce_op", "root", "peer"):
        if (value := getattr(op, key)) is not None:
            entry[key] = value
    return entry
