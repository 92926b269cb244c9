"""What ranks recorded, whatever it was read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# What is no collective is numbered in ranges of its own: see the recorder's documentation.
FIRST_SPLIT = 1 << 58

# "ended": it went through its exit, with communicators that were not finalized. "killed": it did
# not. "finalized": it did not, and nothing of it was open any more. "unknown": the file is a copy,
# or of another machine.
State = Literal["running", "ended", "killed", "finalized", "unknown"]


class AnalyzeError(Exception):
    """The input makes no sense; the text says which file and why."""


@dataclass(frozen=True)
class Operation:
    """One entry of a dump. `ranks` are global ranks, `root` and `peer` ranks of the group. Times
    are of the wall clock; 0: not known, or not yet."""

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
    error: str | None = None  # the type of what it failed with
    refused: bool = False  # by a hook, before anything was sent; others have not met it
    async_op: bool = False
    bytes: int | None = None
    thread: int = 0
    peers: tuple[int, ...] = ()  # of a batch, where they are known; ranks of the group

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
        """Sent, and not done: also where it failed."""
        return not self.done and not self.refused

    def __str__(self) -> str:
        if self.is_message:
            peer = "any rank" if self.peer is None else self.peer
            return f"{self.name} {'to' if self.name == 'send' else 'from'} {peer}"
        return f"{self.name} {self.sequence % FIRST_SPLIT}"


def unknown_collective(group: str, number: int) -> Operation:
    """One that is under way, of which nothing but its number is known."""
    return Operation(
        group=group, name="collective", sequence=number, state="started", failed=False,
        input_sizes=(), output_sizes=(), dtypes=(), reduce_op=None, root=None, peer=None,
        created_ns=0, record_id=-1,
    )  # fmt: skip


@dataclass(frozen=True)
class Process:
    """Who left a record. At `stack_signal` it writes its stacks to its `stack_descriptor`."""

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
    """A rank is inside `call`, which makes communicator `name`: to be its `rank` of `size`.
    `members`: global ranks, where the call has a list of them. `identity`: that the communicator
    will have, where that is known before; 0: it is not."""

    name: str
    call: str
    rank: int
    size: int
    since_ns: int
    members: tuple[int, ...] = ()
    identity: int = 0

    @property
    def key(self) -> tuple[str, str, int, tuple[int, ...], int]:
        """Equal for all that wait for the same."""
        return self.name, self.call, self.size, self.members, self.identity


@dataclass(frozen=True)
class Dump:
    """What one rank recorded, oldest first. `members`: global ranks of each communicator, -1 where
    nobody says. `entered` and `finished`: the last collective of each that began here, and that
    ended, also where its record was overwritten since; without the second none is under way but by
    its record. `makings`: of those that it waits to be a member of. `places`: its own rank in each,
    where the record says it. `identities`: a number of each that is equal on all of its ranks, 0
    where none is known. `left`: those that it has gone on from, by reconfigure()."""

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
        """Collectives of `group` that it is in, as far as their records are not there any more."""
        entered = self.entered.get(group, 0)
        inside = range(self.finished.get(group, entered) + 1, entered + 1)
        if not inside:
            return inside
        # Newer records outlive older ones.
        recorded = (op.sequence for op in self.operations if op.group == group)
        return range(inside.start, min((n for n in recorded if n in inside), default=inside.stop))

    def place_in(self, group: str) -> int:
        """Its own rank there; -1 where nobody says."""
        members = self.members[group]
        listed = members.index(self.rank) if self.rank in members else -1
        return self.places.get(group, listed)
