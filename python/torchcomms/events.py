"""The reader of the event ring: the last operations of this process, oldest first.

Every operation of every communicator leaves a "begin" and an "end" record in a bounded ring. The
ring cannot be switched off. `read()` returns the records, `print_table()` prints one line per
operation. The ring lies in a file that outlives a killed process; `torchcomms trace` reads the
files of a job. `TORCHCOMM_EVENTS_PRINT=1` prints the table on stderr when the program exits.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from torchcomms import _comms, _environment
from torchcomms._table import human_bytes, table

__all__ = ["file", "folders", "print_table", "read"]

Event = dict[str, Any]

_HEADERS = ("op", "comm", "seq", "mode", "what", "dtype", "bytes", "start ms", "took us", "state")
_RIGHT = (2, 6, 7, 8)


def read() -> list[Event]:
    """Returns a copy of the ring's records, oldest first.

    Each record is a dict with these keys:

    - `seq`: position in the ring's history; if the first value is above 0, older records were
      overwritten.
    - `op`, `comm`, and `comm_seq`, the number of the operation in that communicator.
    - `op_id`: the id that hooks receive.
    - `phase` ("begin" or "end"), `ok`, `async_op`, `dtype`, `reduce_op`, `root_or_peer`, `numel`,
      `bytes`.
    - `time_ns` (monotonic clock) and `thread`.

    Safe at any time from any thread. A record that is being written is omitted.
    """
    return _comms._read_events()


def file() -> str | None:
    """The file that holds the ring of this process, which `torchcomms trace` reads.

    Returns:
        None if there is no communicator yet, or if the ring is only in memory.
    """
    return _comms._event_ring()["file"] or None


def folders() -> list[str]:
    """The folders in which processes with this environment put ring files, one subfolder per job.

    A process takes the first folder that works. Empty if TORCHCOMM_RECORDER_DIR is `off`.
    """
    return _comms._recorder_folders()


def print_table(file: TextIO | None = None) -> None:
    """Prints one line per operation, in the order of their start, to `file` (default: stdout)."""
    out = sys.stdout if file is None else file
    events = read()
    if not events:
        print("no events: no operation has run in this process", file=out)
        return
    start_ns = min(event["time_ns"] for event in events)
    rows = [_row(begin, end, start_ns) for begin, end in _pair(events)]
    print(table(_HEADERS, rows, right=_RIGHT), file=out)
    if events[0]["seq"] > 0:
        print(f"({events[0]['seq']} older records were overwritten)", file=out)


def _pair(events: Iterable[Event]) -> list[tuple[Event | None, Event | None]]:
    """Joins the begin and end records of each operation.

    Either may be None: the begin if the ring has overwritten it, the end if the operation is in
    flight.
    """
    pairs: list[tuple[Event | None, Event | None]] = []
    open_at: dict[tuple[str, int, str], int] = {}
    for event in events:
        key = (event["comm"], event["comm_seq"], event["op"])
        if event["phase"] == "begin":
            open_at[key] = len(pairs)
            pairs.append((event, None))
        elif (at := open_at.pop(key, None)) is not None:
            pairs[at] = (pairs[at][0], event)
        else:
            pairs.append((None, event))
    return pairs


def _row(begin: Event | None, end: Event | None, start_ns: int) -> tuple[object, ...]:
    event = begin or end
    assert event is not None
    details = [str(event["reduce_op"])] if event["reduce_op"] else []
    if event["root_or_peer"] is not None and event["root_or_peer"] >= 0:
        details.append(f"{_role(event['op'])} {event['root_or_peer']}")
    state = "in flight" if end is None else "ok" if end["ok"] else "FAILED"
    return (
        event["op"],
        event["comm"],
        event["comm_seq"],
        "async" if event["async_op"] else "sync",
        ", ".join(details) or None,
        event["dtype"] or None,
        human_bytes(event["bytes"]),
        f"{(begin['time_ns'] - start_ns) / 1e6:.3f}" if begin else None,
        f"{(end['time_ns'] - begin['time_ns']) / 1e3:.1f}" if begin and end else None,
        state,
    )


def _role(op: str) -> str:
    return {"send": "to", "recv": "from"}.get(op, "root")


def _install_exit_printer() -> None:
    """Prints the table at exit if TORCHCOMM_EVENTS_PRINT is true. The package calls it once."""
    if _environment.flag("TORCHCOMM_EVENTS_PRINT"):
        atexit.register(print_table, sys.stderr)
