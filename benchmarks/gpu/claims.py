"""What is promised, held against what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from torchcomms._table import human_bytes
from torchcomms.bench import Point

from benchmarks.gpu.host import RAW_IN_CPP
from benchmarks.gpu.sides import OURS, RAW, UNLIMITED

MOST_CALL_US = 10.5  # a small all_reduce from Python
MOST_OF_TORCHS_CALL = 0.55  # of the same through torch.distributed
MOST_ADDED_US = 1.5  # by one call, to the host's time for the library's
MOST_LIMIT_US = 1.0  # what an operation's limit takes in a graph
NOISE = 1.02  # a ratio that counts as equal
GRANULE_MIB = 2.0  # in which a device's memory is given out


@dataclass(frozen=True)
class Claim:
    """One line of the report. Nothing measured: what it needs is not here."""

    what: str
    unit: str
    measured: float | None
    limit: float
    of: str = ""  # the values behind a ratio or a difference

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not here"
        return "PASS" if self.measured <= self.limit else "miss"

    def as_dict(self) -> dict[str, object]:
        return {"measure": "claim", **asdict(self), "verdict": self.verdict}


class Points:
    """Medians by operation, mode, bytes and backend."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._medians = {(p.op, p.mode, p.bytes, p.backend): p.p50_us for p in points}

    def us(self, op: str, mode: str, size_bytes: int, backend: str) -> float | None:
        return self._medians.get((op, mode, size_bytes, backend))

    def ratio(
        self, what: str, key: tuple[str, str, int], theirs: str, limit: float = NOISE
    ) -> Claim:
        """Ours to theirs."""
        return ratio(what, (self.us(*key, OURS), self.us(*key, theirs)), "us", limit)


def ratio(what: str, both: tuple[float | None, float | None], unit: str, limit: float) -> Claim:
    """Of the first to the second."""
    ours, theirs = both
    if ours is None or theirs is None or theirs <= 0:
        return Claim(what, "times", None, limit)
    return Claim(what, "times", ours / theirs, limit, f"{ours:.2f} / {theirs:.2f} {unit}")


def of_calls(points: Points, host_us: Mapping[str, float], small: int, torchs: str) -> list[Claim]:
    """Small operations."""
    size = human_bytes(small)
    eager, graph = ("all_reduce", "eager", small), ("all_reduce", "graph", small)
    claims = [
        Claim(f"all_reduce of {size} from Python", "us", points.us(*eager, OURS), MOST_CALL_US),
        points.ratio(f"the same, to {torchs}", eager, torchs, MOST_OF_TORCHS_CALL),
    ]
    for raw in (RAW, RAW_IN_CPP):
        ours, theirs = host_us[OURS], host_us[raw]
        what = f"host time of one call, beyond that of {raw}"
        values = f"{ours:.2f} - {theirs:.2f} us"
        claims.append(Claim(what, "us", ours - theirs, MOST_ADDED_US, values))
    claims.append(points.ratio(f"all_reduce of {size} in a graph, to {RAW}", graph, RAW))
    limited, unlimited = points.us(*graph, OURS), points.us(*graph, UNLIMITED)
    what = f"limit of an all_reduce of {size} in a graph"
    if limited is None or unlimited is None:
        claims.append(Claim(what, "us", None, MOST_LIMIT_US))
    else:
        values = f"{limited:.2f} - {unlimited:.2f} us"
        claims.append(Claim(what, "us", limited - unlimited, MOST_LIMIT_US, values))
    return claims


def of_sizes(points: Points, ops: Sequence[str], sizes: Sequence[int]) -> Iterator[Claim]:
    """Large operations."""
    for mode in ("eager", "graph"):
        for op in ops:
            for size in sizes:
                what = f"{op} of {human_bytes(size)}, {mode}, to {RAW}"
                yield points.ratio(what, (op, mode, size), RAW)


def of_start(start: Mapping[str, Mapping[str, float]], torchs: str) -> Iterator[Claim]:
    ours, theirs = start[OURS], start[torchs]
    for key, what in (
        ("new_made_ms", "new_comm in a warm process, to init_process_group"),
        ("new_ready_ms", "new_comm and its first all_reduce, to the same"),
        ("split_made_ms", "split, to new_group of all ranks"),
        ("split_ready_ms", "split and its first all_reduce, to the same"),
    ):
        yield ratio(what, (ours[key], theirs[key]), "ms", NOISE)
    memory = "device memory of a second communicator by split"
    if "split_mib" not in ours:
        yield Claim(memory, "MiB", None, GRANULE_MIB)
        return
    limit = theirs["split_mib"] + GRANULE_MIB
    yield Claim(memory, "MiB", ours["split_mib"], limit, f"{torchs}: {theirs['split_mib']:.1f} MiB")


def markdown(claims: Iterable[Claim]) -> str:
    lines = ["| line | measured | at most | of | verdict |", "|---|---|---|---|---|"]
    for claim in claims:
        value = "-" if claim.measured is None else f"{claim.measured:.3f} {claim.unit}"
        limit = f"{claim.limit:.2f} {claim.unit}"
        lines.append(f"| {claim.what} | {value} | {limit} | {claim.of or '-'} | {claim.verdict} |")
    return "\n".join(lines)
