"""Reads records: files of event rings, or flight recorder dumps as JSON or pickle, one per rank."""

from __future__ import annotations

import json
import pickle
import re
import reprlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from torchcomms._dtype import of_recorder
from torchcomms._table import printable
from torchcomms.analyze import job, ring
from torchcomms.analyze.record import AnalyzeError, Dump, Operation

# What the parsers raise for malformed files: json for too deep nesting, pickle for instructions
# with operands of a wrong type.
_MALFORMED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
)


class _Plain(pickle.Unpickler):
    """Unpickles plain values only. A class or function is an error, so no code can run."""

    def find_class(self, module: str, name: str) -> None:
        raise pickle.UnpicklingError(
            f"the pickle names {module}.{name}; a dump may contain only plain values"
        )


def read(paths: Iterable[Path]) -> list[Dump]:
    """Reads the records of one job.

    Args:
        paths: files, and folders whose files are read. If a folder holds event rings of several
            jobs, those of the newest job are read.
    Returns:
        One Dump per rank, in the order of ranks. A file of a folder that cannot be read is left
        out, with a line on stderr.
    Raises:
        AnalyzeError: a named file cannot be read, two files are of one rank, or there is no record.
    """
    paths = list(paths)
    records: list[Dump | ring.Ring] = []
    for path in paths:
        if not path.is_dir():
            records.append(_read_file(path))
            continue
        inside = sorted(p for p in path.iterdir() if p.is_file() and p.suffix != ring.SUFFIX)
        records += filter(None, (_found(_read_file, file) for file in inside))
        records += job.newest_job(_rings_in(path))
    return _together(paths, records)


def read_newest(folders: Iterable[Path]) -> list[Dump]:
    """Reads the event rings of the job that started last, of all jobs in all `folders`.

    A job can have files in several folders: when one was full, a process used the next one.

    Returns:
        One Dump per rank, in the order of ranks.
    Raises:
        AnalyzeError: there is no record, or no process was connected with other ranks.
    """
    folders = list(folders)
    return _together(folders, job.newest_job(r for at in folders for r in _rings_in(at)))


def _together(paths: list[Path], records: Iterable[Dump | ring.Ring]) -> list[Dump]:
    rings: list[ring.Ring] = []
    dumps: dict[int, Dump] = {}
    for dump in records:
        if isinstance(dump, ring.Ring):
            rings.append(dump)
            continue
        if (other := dumps.get(dump.rank)) is not None:
            raise AnalyzeError(f"{dump.source} and {other.source} are both of rank {dump.rank}")
        dumps[dump.rank] = dump
    for dump in job.to_dumps(rings):
        dumps.setdefault(dump.rank, dump)
    if not dumps:
        raise AnalyzeError(
            f"{len(rings)} processes left records, but none of them was connected with other ranks"
            if rings
            else f"no record in {', '.join(map(str, paths)) or 'any folder of this user'};"
            " a process has one after its first new_comm()"
        )
    return [dumps[rank] for rank in sorted(dumps)]


def _rings_in(folder: Path) -> list[ring.Ring]:
    """Reads the event rings of all jobs in `folder` and in its subfolders."""
    suffix = ring.SUFFIX
    paths = [*sorted(folder.glob(f"*{suffix}")), *sorted(folder.glob(f"*/*{suffix}"))]
    return [each for path in paths if (each := _found(_read_ring, path)) is not None]


Record = TypeVar("Record")


def _found(read_one: Callable[[Path], Record], path: Path) -> Record | None:
    """Reads a file of a folder. Returns: None if it cannot be read, as other files may suffice.

    A file that has disappeared is ignored: its process ended and removed it.
    """
    try:
        return read_one(path)
    except AnalyzeError as error:
        if path.exists():
            print(printable(f"torchcomms: left out: {error}"), file=sys.stderr)
        return None


def _read_ring(path: Path) -> ring.Ring:
    try:
        return ring.read_ring(path)
    except OSError as error:
        raise AnalyzeError(f"{path} cannot be read: {error}") from None


def _read_file(path: Path) -> Dump | ring.Ring:
    try:
        if ring.is_ring(path):
            return ring.read_ring(path)
        with path.open("rb") as file:
            is_pickle = file.peek(1)[:1] == b"\x80"
            raw = _Plain(file).load() if is_pickle else json.loads(file.read())
    except OSError as error:
        raise AnalyzeError(f"{path} cannot be read: {error}") from None
    except _MALFORMED as error:
        raise AnalyzeError(
            f"{path} cannot be read: neither an event ring nor a flight recorder dump as JSON or"
            f" pickle ({str(error) or type(error).__name__})"
        ) from None
    if not isinstance(raw, dict) or "pg_config" not in raw:
        raise AnalyzeError(f"{path} is not a flight recorder dump: pg_config is missing")
    return parse(raw, str(path))


def parse(raw: dict[str, Any], source: str) -> Dump:
    """Converts a flight recorder dump that was already read.

    The rank is the dump's field, or else the number at the end of `source`. Raises AnalyzeError.
    """
    try:
        rank = _value(raw, "global_rank", int | None, None)
        if rank is None:
            number = re.search(r"(\d+)(\.\w+)?$", source)
            if number is None:
                raise AnalyzeError(
                    f"the rank of {source} is unknown: global_rank is missing, and the file name"
                    " does not end in a number"
                )
            rank = int(number[1])
        members = {
            _checked("a group's name", name, str): tuple(int(r) for r in json.loads(group["ranks"]))
            for name, group in raw["pg_config"].items()
        }
        backends = {name: str(group.get("desc", "")) for name, group in raw["pg_config"].items()}
        operations = tuple(_operation(entry) for entry in raw.get("entries", ()))
    except _MALFORMED as error:
        raise AnalyzeError(f"{source} is not a flight recorder dump: {error!r}") from None
    return Dump(rank, source, members, operations, backends=backends)


_ABSENT = object()


def _value(entry: dict[str, Any], key: str, kind: Any, default: Any = _ABSENT) -> Any:  # noqa: ANN401
    value = entry[key] if default is _ABSENT else entry.get(key, default)
    return _checked(key, value, kind)


def _checked(key: str, value: Any, kind: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, kind):
        allowed = kind.__name__ if isinstance(kind, type) else kind
        raise TypeError(f"{key} is {reprlib.repr(value)}, allowed is {allowed}")
    return value


def _sizes(entry: dict[str, Any], key: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(_checked(key, one, int) for one in sizes) for sizes in entry[key])


def _dtypes(entry: dict[str, Any]) -> tuple[str, ...]:
    keys = ("input_dtypes", "output_dtypes")
    found = {_checked(key, one, str) for key in keys for one in entry[key]}
    return tuple(sorted(map(of_recorder, found)))


def _time(entry: dict[str, Any], key: str, kind: Any = int, default: Any = _ABSENT) -> int:  # noqa: ANN401
    value = _value(entry, key, kind, default) or 0
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{key} is {reprlib.repr(value)}, allowed are nanoseconds since 1970")
    return int(value)


def _operation(entry: dict[str, Any]) -> Operation:
    name_parts = _value(entry, "profiling_name", str).rpartition(":")[2].split(" ")
    return Operation(
        group=_checked("process_group", entry["process_group"][0], str),
        name=_value(entry, "operation", str, name_parts[0]),
        sequence=_value(entry, "collective_seq_id", int),
        state=_value(entry, "state", str),
        failed=_value(entry, "failed", bool, False),
        refused=_value(entry, "refused", bool, False),
        input_sizes=_sizes(entry, "input_sizes"),
        output_sizes=_sizes(entry, "output_sizes"),
        dtypes=_dtypes(entry),
        reduce_op=_value(entry, "reduce_op", str | None, None),
        root=_value(entry, "root", int | None, None),
        peer=_value(entry, "peer", int | None, None),
        created_ns=_time(entry, "time_created_ns"),
        record_id=_value(entry, "record_id", int),
        op_id=_value(entry, "op_id", int, 0),
        entered_ns=_time(entry, "time_discovered_started_ns", int | None, None),
        ended_ns=_time(entry, "time_discovered_completed_ns", int | None, None),
        thread=_value(entry, "thread_id", int | str, 0),
    )
