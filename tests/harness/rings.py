"""Files of event rings, made up byte by byte: what any version of the writer has to leave."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

OPS = ("send", "recv", "broadcast", "all_reduce", "barrier", "batch_op_issue")
DTYPES = ("uint8", "float32")
REDUCTIONS = ("SUM", "MAX")
ERRORS = ("-", "InvalidArgument", "CommTimeout")
NONE, NO_PEER = 0xFF, 0xFFFF
WALL_NS = 1_700_000_000_000_000_000  # when every process began, with its steady clock at STEADY_NS
STEADY_NS = 5_000_000_000
ROWS, SLOTS = 4, 16


@dataclass(frozen=True)
class Comm:
    name: str
    rank: int
    members: Sequence[int]
    entered: int = 0
    finished: int | None = None  # `entered`, where it is not said
    membership: int | None = None
    size: int | None = None
    being_made: bool = False
    by_split: bool = False
    identity: int = 0
    closed: bool = False


@dataclass(frozen=True)
class Op:
    """`begin_ms` and `end_ms` count from the start of the process; None: it has not ended."""

    name: str
    order: int
    begin_ms: float
    end_ms: float | None = None
    elements: int = 0
    dtype: str | None = None
    reduce_op: str | None = None
    root_or_peer: int = -1
    error: str | None = None
    async_op: bool = False
    entered_ms: float | None = None
    comm: int = 0
    peers: tuple[int, ...] = ()


def worlds(size: int) -> list[Comm]:
    return [Comm("world", rank, range(size), entered=2) for rank in range(size)]


def made_by(name: str, rank: int, size: int, membership: int | None = None) -> Comm:
    return Comm(name, rank, (), membership=membership, size=size, being_made=True)


def ring(
    rank: int, comms: Sequence[Comm], ops: Iterable[Op], *, pid: int = 0, job: str = "job",
    began_ms: float = 0, ended: bool = False, version: int = 2,
) -> bytes:  # fmt: skip
    """A whole file."""
    texts = (("boot of nowhere", 40), ("host", 64), (job, 128), (f"python rank{rank}", 256))
    names_by_kind = {"ops": OPS, "dtypes": DTYPES, "reductions": REDUCTIONS, "errors": ERRORS}
    vocabulary = "".join(f"{key} {' '.join(values)}\n" for key, values in names_by_kind.items())
    events = _events(ops)
    header = struct.pack(
        "<8s6IqQq3Q2iQ2i", b"TCRING\n\0", version, 4096, 512, ROWS, 128, SLOTS, pid or 1000 + rank,
        STEADY_NS, WALL_NS + int(began_ms * 1e6), len(events), 0, STEADY_NS if ended else 0, rank,
        1, 0, 0, -1,
    )  # fmt: skip
    header += b"".join(text.encode().ljust(size, b"\0") for text, size in texts)
    out = bytearray((header + vocabulary.encode()).ljust(4096, b"\0"))
    for number in range(ROWS):
        out += _row(number, comms[number]) if number < len(comms) else bytes(512)
    slots = [bytes(128)] * SLOTS
    for index, event in enumerate(events):
        slots[index % SLOTS] = struct.pack("<Q", 2 * index + 2) + event.ljust(120, b"\0")
    return bytes(out) + b"".join(slots)


def write(folder: Path, rank: int, comms: Sequence[Comm], ops: Iterable[Op], **more: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"host-{more.get('pid', 1000 + rank)}.ring"
    path.write_bytes(ring(rank, comms, ops, **more))  # type: ignore[arg-type]
    return path


def _row(number: int, comm: Comm) -> bytes:
    size = len(comm.members) if comm.size is None else comm.size
    flags = (
        (1 if comm.membership is not None else 0) | comm.closed * 2 | (0 if comm.members else 4)
        | comm.being_made * 8 | comm.by_split * 16
    )  # fmt: skip
    runs = b"".join(struct.pack("<3i", member, 1, 1) for member in comm.members)
    head = struct.pack(
        "<5QqI2iIQ", number + 1, STEADY_NS + number, 0, comm.entered,
        comm.entered if comm.finished is None else comm.finished, comm.membership or 0, flags,
        comm.rank, size, len(comm.members), comm.identity,
    )  # fmt: skip
    name, backend = comm.name.encode().ljust(168, b"\0"), b"fake".ljust(32, b"\0")
    return (head + name + backend + runs).ljust(512, b"\0")


def _events(ops: Iterable[Op]) -> list[bytes]:
    timed = []
    for number, op in enumerate(ops):
        timed.append((op.begin_ms, _event(number, op, op.begin_ms, 0)))
        if op.end_ms is not None:
            timed.append((op.end_ms, _event(number, op, op.end_ms, 1)))
    return [event for _, event in sorted(timed, key=lambda item: item[0])]


def _event(number: int, op: Op, at_ms: float, phase: int) -> bytes:
    def steady(ms: float) -> int:
        return STEADY_NS + int(ms * 1e6)

    sent = 0 if op.name == "recv" else op.elements
    received = 0 if op.name == "send" else op.elements
    return struct.pack(
        "<QI3Bx4BiI2H6QQ", steady(at_ms), 7, phase, op.error is None or phase == 0,
        ERRORS.index(op.error) if op.error and phase else 0, OPS.index(op.name),
        DTYPES.index(op.dtype) if op.dtype else NONE,
        REDUCTIONS.index(op.reduce_op) if op.reduce_op else NONE, op.async_op, op.root_or_peer,
        op.comm, *(*op.peers, NO_PEER, NO_PEER)[:2], number + 1, number, sent, received,
        4 * op.elements, op.order,
        steady(op.entered_ms) if op.entered_ms is not None and phase == 0 else 0,
    )  # fmt: skip
