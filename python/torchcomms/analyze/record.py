"""What ranks recorded, independent of the format of the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# Operations that are not collectives have numbers in separate ranges: see
# docs/concepts/recorder.md.
FIRST_SPLIT = 1 << 58

# "ended": the process exited normally, with communicators that were not finalized. "killed": it did
# not exit normally. "finalized": it did not exit normally, but had no open communicator. "unknown":
# the file is a copy, or from another machine.
State = Literal["running", "ended", "killed", "finalized", "unknown"]


class AnalyzeError(Exception):
    """The input cannot be analyzed; the text says which file and why."""


@dataclass(frozen=True)
class Operation:
    """One operation of one rank, as a record has it.

    Attributes:
        group: the communicator's name.
        name: the operation, such as "all_reduce".
        sequence: the number on which the participating ranks agree.
        state: "completed" or a state before that, such as "started".
        failed: the operation ended with an error.
        input_sizes: the shapes of the inputs, or element counts.
        output_sizes: the shapes of the outputs, or element counts.
        dtypes: "float32", ...
        reduce_op: the reduction, if any.
        root: rank of the group; None if the operation has no root.
        peer: rank of the group; None if the operation has no peer, or receives from any source.
        created_ns: when it was called, in ns of the wall clock; 0: unknown.
        entered_ns: when it left the queue, in ns of the wall clock; 0: not yet, or it was not
            queued.
        ended_ns: when it ended, in ns of the wall clock; 0: unknown, or not yet.
        record_id: the position in the record.
        op_id: the id that hooks receive.
        error: the type of the error.
        refused: a hook refused the operation before anything was sent; peers do not know of it.
        async_op: as in the call.
        bytes: the size of the data; None if unknown.
        thread: the thread that called.
        peers: the peers of a batch as far as known, ranks of the group.
    """

    group: str
    name: str
    sequence: int
    state: str
    failed: bool
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    reduce_op: str | None
    root: int | None
    peer: int | None
    created_ns: int
    record_id: int
    op_id: int = 0
    entered_ns: int = 0
    ended_ns: int = 0
    error: str | None = None  # the type of the error
    refused: bool = False  # a hook refused it before anything was sent
    async_op: bool = False
    bytes: int | None = None
    thread: int = 0
    peers: tuple[int, ...] = ()  # of a batch, if known; ranks of the group

    @property
    def is_message(self) -> bool:
        return self.name in ("send", "recv")

    @property
    def is_batch(self) -> bool:
        return self.name == "batch_op_issue"

    @property
    def is_collective(self) -> bool:
        return not self.is_message and self.sequence < FIRST_SPLIT

    @property
    def done(self) -> bool:
        return self.state == "completed"

    @property
    def pending(self) -> bool:
        """The operation was issued and is not completed; also true if it failed."""
        return not self.done and not self.refused

    def __str__(self) -> str:
        if self.is_message:
            peer = "any rank" if self.peer is None else self.peer
            return f"{self.name} {'to' if self.name == 'send' else 'from'} {peer}"
        return f"{self.name} {self.sequence % FIRST_SPLIT}"


def unknown_collective(group: str, number: int) -> Operation:
    """A collective in flight of which only the number is known."""
    return Operation(
        group=group, name="collective", sequence=number, state="started", failed=False,
        input_sizes=(), output_sizes=(), dtypes=(), reduce_op=None, root=None, peer=None,
        created_ns=0, record_id=-1,
    )  # fmt: skip


@dataclass(frozen=True)
class Process:
    """The process that left a record.

    Attributes:
        pid: the process id, in the process's own container.
        host: the host name.
        job: the name of the job.
        command: the command line.
        began_ns: start of the process, in ns of the wall clock.
        state: "running", "ended", "killed", "finalized" or "unknown".
        stack_signal: the signal that makes the process write its stacks; 0: none.
        stack_descriptor: the file descriptor that it writes its stacks to.
    """

    pid: int
    host: str
    job: str
    command: str
    began_ns: int
    state: State
    stack_signal: int = 0
    stack_descriptor: int = -1


@dataclass(frozen=True)
class Making:
    """A rank is inside a call that creates a communicator.

    Attributes:
        name: the communicator.
        call: "new_comm", "split" or "reconfigure".
        rank: the rank in the new communicator.
        size: the number of ranks of the new communicator.
        since_ns: when the call began, in ns of the wall clock.
        members: global ranks, if the call has a list of them.
        identity: the identity of the communicator, if it is known before; else 0.
    """

    name: str
    call: str
    rank: int
    size: int
    since_ns: int
    members: tuple[int, ...] = ()
    identity: int = 0

    @property
    def key(self) -> tuple[str, str, int, tuple[int, ...], int]:
        """A key that is equal for all ranks that wait for the same communicator."""
        return self.name, self.call, self.size, self.members, self.identity


@dataclass(frozen=True)
class Dump:
    """What one rank recorded. Dicts have one entry per communicator, by its name.

    Attributes:
        rank: the global rank.
        source: the file.
        members: the global ranks of the members; -1 if unknown.
        operations: oldest first.
        entered: the number of the last collective that began here, also if its record is
            overwritten.
        finished: the number of the last collective that ended here. If missing, only records show
            what is in flight.
        backends: the name of the backend.
        process: the process, if the record says it.
        makings: the communicators that the rank waits to be a member of.
        places: the rank's place in the communicator, if the record says it.
        identities: a number that is equal on all ranks of the communicator; 0: unknown.
        left: the communicators that reconfigure() has replaced.
    """

    rank: int
    source: str
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()
    entered: dict[str, int] = field(default_factory=dict)
    finished: dict[str, int] = field(default_factory=dict)
    backends: dict[str, str] = field(default_factory=dict)
    process: Process | None = None
    makings: tuple[Making, ...] = ()
    places: dict[str, int] = field(default_factory=dict)
    identities: dict[str, int] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    def overwritten(self, group: str) -> range:
        """The collectives of `group` that are in flight, but whose records are overwritten."""
        entered = self.entered.get(group, 0)
        inside = range(self.finished.get(group, entered) + 1, entered + 1)
        if not inside:
            return inside
        # The ring overwrites the oldest records first.
        recorded = (op.sequence for op in self.operations if op.group == group)
        return range(inside.start, min((n for n in recorded if n in inside), default=inside.stop))

    def place_in(self, group: str) -> int:
        """The rank's own place in `group`; -1 if unknown."""
        members = self.members[group]
        listed = members.index(self.rank) if self.rank in members else -1
        return self.places.get(group, listed)
