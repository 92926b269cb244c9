"""Reads the files of the always-on event rings, also of killed processes.

A file may be written while it is read: an event that changes meanwhile is left out. The layout is
defined by src/tracing/ring_layout.hpp.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from torchcomms.analyze.record import AnalyzeError, Making, Operation, Process, State

SUFFIX = ".ring"
MAGIC = b"TCRING\n\0"
_VERSION = 2
_HEADER = struct.Struct("<8s6IqQq3Q2iQ2i40s64s128s256s3504s")
_FACTS = (
    "magic", "version", "header_bytes", "row_bytes", "rows", "slot_bytes", "slots", "pid",
    "began_ns", "began_wall_ns", "next", "skipped", "ended_ns", "rank", "open", "inode",
    "stack_signal", "stack_descriptor", "boot", "host", "job", "command", "vocabulary",
)  # fmt: skip
_ROW = struct.Struct("<5QqI2iIQ168s32s60i")
_SLOT = struct.Struct("<QQI3Bx4BiI2H6QQ32x")
_HAS_MEMBERSHIP, _CLOSED, _UNKNOWN_MEMBERS, _INITIALIZING, _BY_SPLIT = 1, 2, 4, 8, 16
_NONE, _OTHER_ERROR, _NO_PEER = 0xFF, 0xFF, 0xFFFF
_MOST_RUNS, _MOST_RANKS = 20, 1_000_000
_BEGIN = 0


class _Event(NamedTuple):
    stamp: int
    time_ns: int
    thread: int
    phase: int
    ok: int
    error: int
    kind: int
    dtype: int
    reduce_op: int
    async_op: int
    root_or_peer: int
    comm: int
    peer: int
    other_peer: int
    sequence: int
    op_id: int
    elements_in: int
    elements_out: int
    bytes: int
    order: int
    entered_ns: int


# The key of a communicator, unique in a job.
CommKey = int | tuple[str, int, int]


@dataclass(frozen=True)
class Comm:
    id: int
    key: CommKey
    name: str
    backend: str
    time_ns: int
    entered: int
    finished: int
    rank: int
    size: int
    members: tuple[int, ...] | None
    identity: int  # equal on all of its ranks and unique; 0: unknown
    membership: int | None
    ended: bool  # on this rank
    made_by: str | None  # the call that creates it, if it is still being created

    @property
    def whole_name(self) -> str:
        """The name with the membership number, equal on all ranks."""
        return self.name if self.membership is None else f"{self.name}#{self.membership}"


@dataclass(frozen=True)
class Ring:
    """One file of an event ring, as it was when it was read."""

    path: Path
    rank: int  # -1: the process has never been connected and waits for no peer
    process: Process
    last_ns: int  # wall clock; the time of the last record
    comms: tuple[Comm, ...]
    makings: tuple[Making, ...]
    events: tuple[_Event, ...]
    vocabulary: dict[str, list[str]]
    clock_ns: int  # the wall clock at which the clock of `events` is 0

    def wall(self, time_ns: int) -> int:
        return self.clock_ns + time_ns if time_ns else 0


def is_ring(path: Path) -> bool:
    """Returns: whether the file begins with the magic bytes of an event ring."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_ring(path: Path) -> Ring:
    """Reads one file of an event ring.

    Raises: AnalyzeError for a file that is not a complete ring, OSError if it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read()
        file.seek(0)
        again = file.read()
        owned = _is_owned(file.fileno())
        inode = os.fstat(file.fileno()).st_ino
    if len(data) < _HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise AnalyzeError(f"{path} is not an event ring: the magic bytes are wrong")
    header = dict(zip(_FACTS, _HEADER.unpack_from(data), strict=True))
    if header["version"] != _VERSION:
        raise AnalyzeError(
            f"{path} has layout {header['version']}; this program knows layout {_VERSION}"
        )
    sizes = tuple(header[of] for of in ("header_bytes", "row_bytes", "slot_bytes"))
    if sizes != (_HEADER.size, _ROW.size, _SLOT.size):
        raise AnalyzeError(
            f"{path} is not an event ring: its parts have sizes {sizes}, expected"
            f" {(_HEADER.size, _ROW.size, _SLOT.size)}"
        )
    first_slot = _HEADER.size + header["rows"] * _ROW.size
    end = first_slot + header["slots"] * _SLOT.size
    if len(data) < end or len(again) != len(data):
        raise AnalyzeError(f"{path} is truncated: {len(data)} of {end} bytes")

    clock_ns = header["began_wall_ns"] - header["began_ns"]
    lines = (line.split(" ") for line in _text(header["vocabulary"]).splitlines())
    vocabulary = {line[0]: line[1:] for line in lines}
    try:
        rows = _comms(data[_HEADER.size : first_slot], again[_HEADER.size : first_slot])
    except ValueError as error:
        raise AnalyzeError(f"{path} is damaged: {error}") from None
    comms = tuple(row for row in rows if row.made_by is None)
    makings = tuple(
        Making(
            row.whole_name, row.made_by, row.rank, row.size, clock_ns + row.time_ns,
            row.members or (), row.identity,
        )
        for row in rows
        if row.made_by is not None
    )  # fmt: skip
    events = _events(data[first_slot:end], again[first_slot:end])
    known = header["inode"] == inode and _text(header["boot"]) == _boot_identity()
    cut_off: State = "killed" if header["open"] > 0 else "finalized"
    ran_out: State = "ended" if header["ended_ns"] else cut_off
    times = [header["began_ns"], header["ended_ns"], *(row.time_ns for row in rows)]
    return Ring(
        path=path,
        rank=header["rank"] if header["rank"] >= 0 or not makings else makings[0].rank,
        process=Process(
            pid=header["pid"],
            host=_text(header["host"]),
            job=_text(header["job"]),
            command=_text(header["command"]),
            began_ns=header["began_wall_ns"],
            stack_signal=header["stack_signal"],
            stack_descriptor=header["stack_descriptor"],
            state="unknown" if not known else "running" if owned else ran_out,
        ),
        last_ns=clock_ns + max([*times, *(e.time_ns for e in events)]),
        comms=comms,
        makings=makings,
        events=tuple(events),
        vocabulary=vocabulary,
        clock_ns=clock_ns,
    )


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")


def _boot_identity() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _is_owned(descriptor: int) -> bool:
    """Returns: whether the process of the file is alive.

    It holds a lock on the file until it ends.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _comms(data: bytes, again: bytes) -> tuple[Comm, ...]:
    rows = [
        row
        for at, row in enumerate(_ROW.iter_unpack(data))
        if row[0] and again[at * _ROW.size : at * _ROW.size + 8] == row[0].to_bytes(8, "little")
    ]
    found = []
    same_named: Counter[tuple[str, int]] = Counter()  # of communicators without identity
    for row in sorted(rows, key=lambda row: (row[1], row[0])):
        (
            key,
            time_ns,
            ended,
            entered,
            finished,
            membership,
            flags,
            rank,
            size,
            runs,
            identity,
            raw,
            backend,
            *run,
        ) = row
        if size < 0 or (flags & _INITIALIZING and ended):
            continue
        if size > _MOST_RANKS or size <= rank:
            raise ValueError(f"a communicator of {size} ranks cannot have rank {rank}")
        made_by = None
        if flags & _INITIALIZING:
            joins = "reconfigure" if flags & _HAS_MEMBERSHIP else "new_comm"
            made_by = "split" if flags & _BY_SPLIT else joins
        comm = Comm(
            id=key - 1,
            key=identity,
            name=_text(raw),
            backend=_text(backend),
            time_ns=time_ns,
            entered=entered,
            finished=finished,
            rank=rank,
            size=size,
            members=None if flags & _UNKNOWN_MEMBERS else _members(runs, run, size),
            identity=identity,
            membership=membership if flags & _HAS_MEMBERSHIP else None,
            ended=bool(flags & _CLOSED) or ended != 0,
            made_by=made_by,
        )
        if not identity and made_by is None:
            called = comm.whole_name, size
            same_named[called] += 1
            comm = replace(comm, key=(*called, same_named[called]))
        found.append(comm)
    return tuple(found)


def _members(runs: int, numbers: list[int], size: int) -> tuple[int, ...]:
    """Expands the runs of members. Raises ValueError if they do not give `size` ranks."""
    triples = list(zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True))[:runs]
    counts = [count for _, _, count in triples]
    if runs > _MOST_RUNS or min(counts, default=0) < 0 or sum(counts) != size:
        raise ValueError(f"{runs} runs of {sum(counts)} members for a communicator of {size} ranks")
    return tuple(start + stride * i for start, stride, count in triples for i in range(count))


def _events(data: bytes, again: bytes) -> list[_Event]:
    """The events that did not change while the file was read, oldest first."""
    events = []
    for at, raw in enumerate(_SLOT.iter_unpack(data)):
        stamp = raw[0]
        if not stamp or stamp % 2:
            continue
        if again[at * _SLOT.size : at * _SLOT.size + 8] == stamp.to_bytes(8, "little"):
            events.append(_Event(*raw))
    events.sort()
    return events


def operations_of(ring: Ring, names: dict[int, str]) -> tuple[Operation, ...]:
    """The operations of a ring: begin events, each with its end event if there is one.

    An end without a begin is left out: the operation is complete. For begins that were overwritten,
    see Dump.overwritten().

    Args:
        names: the communicators' names by their number in the ring.
    """
    ends = {(e.comm, e.sequence): e for e in ring.events if e.phase != _BEGIN}
    vocabulary, wall = ring.vocabulary, ring.wall
    found = []
    for begin in ring.events:
        group = names.get(begin.comm)
        if begin.phase != _BEGIN or group is None:
            continue
        end = ends.get((begin.comm, begin.sequence))
        name = _vocabulary_name(vocabulary, "ops", begin.kind) or f"operation_{begin.kind}"
        is_message = name in ("send", "recv")
        dtype = _vocabulary_name(vocabulary, "dtypes", begin.dtype)
        at = begin.root_or_peer if begin.root_or_peer >= 0 else None
        found.append(
            Operation(
                group=group,
                name=name,
                sequence=begin.order,
                state="started" if end is None or not end.ok else "completed",
                failed=end is not None and not end.ok,
                input_sizes=((begin.elements_in,),) if dtype and name != "recv" else (),
                output_sizes=((begin.elements_out,),) if dtype and name != "send" else (),
                dtypes=(dtype,) if dtype else (),
                reduce_op=_vocabulary_name(vocabulary, "reductions", begin.reduce_op),
                root=None if is_message else at,
                peer=at if is_message else None,
                created_ns=wall(begin.time_ns),
                record_id=begin.stamp // 2 - 1,
                op_id=begin.op_id,
                entered_ns=wall(begin.entered_ns),
                ended_ns=wall(end.time_ns) if end else 0,
                error=_error(vocabulary, end) if end else None,
                async_op=bool(begin.async_op),
                bytes=begin.bytes,
                thread=begin.thread,
                peers=tuple(at for at in (begin.peer, begin.other_peer) if at != _NO_PEER),
            )
        )
    return tuple(found)


def _vocabulary_name(vocabulary: dict[str, list[str]], of: str, number: int) -> str | None:
    known = vocabulary.get(of, [])
    return known[number] if number != _NONE and number < len(known) else None


def _error(vocabulary: dict[str, list[str]], end: _Event) -> str | None:
    if end.ok:
        return None
    return (
        "error" if end.error == _OTHER_ERROR else _vocabulary_name(vocabulary, "errors", end.error)
    )
