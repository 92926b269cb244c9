"""Flight recorder dumps in: JSON or pickle, one file a rank."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Messages and batches are numbered in ranges of their own: see the recorder's documentation.
_FIRST_BATCH = 1 << 59
_FIRST_MESSAGE = 1 << 60


class AnalyzeError(Exception):
    """The input makes no sense; the text says which file and why."""


@dataclass(frozen=True)
class Operation:
    """One entry of a dump. `ranks` are global ranks, `root` and `peer` ranks of the group."""

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

    @property
    def is_message(self) -> bool:
        return self.name in ("send", "recv")

    @property
    def is_collective(self) -> bool:
        return not self.is_message and self.sequence < _FIRST_BATCH

    @property
    def done(self) -> bool:
        return self.state == "completed"

    def __str__(self) -> str:
        if self.is_message:
            return f"{self.name} {'to' if self.name == 'send' else 'from'} {self.peer}"
        number = self.sequence if self.is_collective else self.sequence - _FIRST_BATCH
        return f"{self.name} {number}"


@dataclass(frozen=True)
class Dump:
    """What one rank recorded, oldest first. `members`: global ranks of each communicator."""

    rank: int
    source: str
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()


class _Plain(pickle.Unpickler):
    """A pickle of plain values: nothing in it can run code."""

    def find_class(self, module: str, name: str) -> None:
        raise pickle.UnpicklingError(f"it names {module}.{name}; a dump holds plain values alone")


def read(paths: Iterable[Path]) -> list[Dump]:
    """Reads the dumps; a folder stands for the files in it. Raises AnalyzeError."""
    files: list[Path] = []
    for path in paths:
        files += sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    dumps: dict[int, Dump] = {}
    for file in files:
        dump = _read_file(file)
        if (other := dumps.get(dump.rank)) is not None:
            raise AnalyzeError(f"{file} and {other.source} are both of rank {dump.rank}")
        dumps[dump.rank] = dump
    if not dumps:
        raise AnalyzeError("no dump is given")
    return [dumps[rank] for rank in sorted(dumps)]


def _read_file(path: Path) -> Dump:
    try:
        with path.open("rb") as file:
            is_pickle = file.peek(1)[:1] == b"\x80"
            raw = _Plain(file).load() if is_pickle else json.loads(file.read())
    except (OSError, ValueError, EOFError, LookupError, pickle.UnpicklingError) as error:
        raise AnalyzeError(f"{path} cannot be read: {error}") from None
    if not isinstance(raw, dict) or "pg_config" not in raw:
        raise AnalyzeError(f"{path} is no flight recorder dump: it has no pg_config")
    return parse(raw, str(path))


def parse(raw: dict[str, Any], source: str) -> Dump:
    """A dump that was read already. Its rank is its own word, else the number that `source` ends
    with. Raises AnalyzeError."""
    rank = raw.get("global_rank")
    if rank is None:
        number = re.search(r"(\d+)(\.\w+)?$", source)
        if number is None:
            raise AnalyzeError(f"{source} says nothing of its rank, and its name ends in no number")
        rank = int(number[1])
    try:
        members = {
            name: tuple(int(r) for r in ast.literal_eval(group["ranks"]))
            for name, group in raw["pg_config"].items()
        }
        operations = tuple(_operation(entry) for entry in raw.get("entries", ()))
    except (KeyError, TypeError, ValueError, SyntaxError, IndexError) as error:
        raise AnalyzeError(f"{source} is no flight recorder dump: {error!r}") from None
    return Dump(rank, source, members, operations)


def _operation(entry: dict[str, Any]) -> Operation:
    words = entry["profiling_name"].rpartition(":")[2].split(" ")
    name = entry.get("operation", words[0])
    return Operation(
        group=entry["process_group"][0],
        name=name,
        sequence=entry["collective_seq_id"],
        state=entry["state"],
        failed=entry.get("failed", False),
        input_sizes=tuple(tuple(sizes) for sizes in entry["input_sizes"]),
        output_sizes=tuple(tuple(sizes) for sizes in entry["output_sizes"]),
        dtypes=tuple(sorted({*entry["input_dtypes"], *entry["output_dtypes"]})),
        reduce_op=entry.get("reduce_op"),
        root=entry.get("root"),
        peer=entry.get("peer"),
        created_ns=entry["time_created_ns"],
        record_id=entry["record_id"],
    )
