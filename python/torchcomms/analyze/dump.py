"""Records in: files of event rings, or flight recorder dumps as JSON or pickle, one a rank."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchcomms._dtype import of_recorder
from torchcomms.analyze import ring
from torchcomms.analyze.record import AnalyzeError, Dump, Operation


class _Plain(pickle.Unpickler):
    """A pickle of plain values: nothing in it can run code."""

    def find_class(self, module: str, name: str) -> None:
        raise pickle.UnpicklingError(f"it names {module}.{name}; a dump holds plain values alone")


def read(paths: Iterable[Path]) -> list[Dump]:
    """Reads the records; a folder stands for the files in it, and where these are event rings of
    several jobs for those of the newest. Raises AnalyzeError."""
    paths = list(paths)
    files: list[Path] = []
    rings: list[ring.Ring] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(p for p in path.iterdir() if p.is_file())
        files += [p for p in inside if p.suffix != ring.SUFFIX]
        found = [p for p in inside if p.suffix == ring.SUFFIX] + sorted(
            path.glob(f"*/*{ring.SUFFIX}")
        )
        rings += ring.newest_job(filter(None, map(_read_living, found)))
    dumps: dict[int, Dump] = {}
    for file in files:
        dump = _read_file(file)
        if dump is None:
            rings.append(ring.read_ring(file))
            continue
        if (other := dumps.get(dump.rank)) is not None:
            raise AnalyzeError(f"{file} and {other.source} are both of rank {dump.rank}")
        dumps[dump.rank] = dump
    for dump in ring.to_dumps(rings):
        dumps.setdefault(dump.rank, dump)
    if not dumps:
        raise AnalyzeError(
            f"{len(rings)} processes left records, and none of them was connected with others"
            if rings
            else f"no record is in {', '.join(map(str, paths)) or 'any folder of this user'};"
            " a process has one from its first new_comm() on"
        )
    return [dumps[rank] for rank in sorted(dumps)]


def _read_living(path: Path) -> ring.Ring | None:
    """None where its process has ended meanwhile, and took it along."""
    try:
        return ring.read_ring(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AnalyzeError(f"{path} cannot be read: {error}") from None


def _read_file(path: Path) -> Dump | None:
    """None for an event ring."""
    try:
        if ring.is_ring(path):
            return None
        with path.open("rb") as file:
            is_pickle = file.peek(1)[:1] == b"\x80"
            raw = _Plain(file).load() if is_pickle else json.loads(file.read())
    except OSError as error:
        raise AnalyzeError(f"{path} cannot be read: {error}") from None
    except (ValueError, EOFError, LookupError, pickle.UnpicklingError) as error:
        raise AnalyzeError(
            f"{path} cannot be read: it is no file of an event ring, and no flight recorder dump as"
            f" JSON or pickle ({error})"
        ) from None
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
        backends = {name: str(group.get("desc", "")) for name, group in raw["pg_config"].items()}
        operations = tuple(_operation(entry) for entry in raw.get("entries", ()))
    except (KeyError, TypeError, ValueError, SyntaxError, IndexError) as error:
        raise AnalyzeError(f"{source} is no flight recorder dump: {error!r}") from None
    return Dump(rank, source, members, operations, backends=backends)


def _operation(entry: dict[str, Any]) -> Operation:
    words = entry["profiling_name"].rpartition(":")[2].split(" ")
    name = entry.get("operation", words[0])
    return Operation(
        group=entry["process_group"][0],
        name=name,
        sequence=entry["collective_seq_id"],
        state=entry["state"],
        failed=entry.get("failed", False),
        refused=entry.get("refused", False),
        input_sizes=tuple(tuple(sizes) for sizes in entry["input_sizes"]),
        output_sizes=tuple(tuple(sizes) for sizes in entry["output_sizes"]),
        dtypes=tuple(sorted(map(of_recorder, {*entry["input_dtypes"], *entry["output_dtypes"]}))),
        reduce_op=entry.get("reduce_op"),
        root=entry.get("root"),
        peer=entry.get("peer"),
        created_ns=entry["time_created_ns"],
        record_id=entry["record_id"],
        op_id=entry.get("op_id", 0),
        entered_ns=entry.get("time_discovered_started_ns") or 0,
        ended_ns=entry.get("time_discovered_completed_ns") or 0,
        thread=entry.get("thread_id", 0),
    )
