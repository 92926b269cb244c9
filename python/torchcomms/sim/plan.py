"""What to simulate, and the check of it before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from torchcomms import _comms
from torchcomms.bench.errors import BenchError
from torchcomms.bench.sizes import MAX_SIZE, parse_sizes

BOOTSTRAP = "bootstrap"
MAX_RANKS = 1_000_000  # the bound of the library's address exchange

# The settings that are whole numbers, each with its smallest and largest value.
WHOLE = {
    "local_size": (1, MAX_RANKS),
    "rails": (0, MAX_RANKS),
    "hosts_per_leaf": (0, MAX_RANKS),
    "chunk": (1, MAX_SIZE),
    "blob_bytes": (0, MAX_SIZE),
    "seed": (0, (1 << 64) - 1),
    "kill": (0, MAX_RANKS - 1),
}


class SimError(Exception):
    """The request is not valid. The text names the value seen and the allowed ones."""


@cache
def algorithms() -> dict[str, list[str]]:
    """The names of the algorithms of every collective operation."""
    table: dict[str, list[str]] = {}
    for row in _comms._algorithms():
        if row["operation"] not in ("send", "receive"):
            table.setdefault(row["operation"], []).append(row["name"])
    return table


def parse_counts(text: str, label: str) -> list[int]:
    """Parses "1K:4K" to [1024, 2048, 4096], in the form of the sizes of `torchcomms bench`.

    Raises:
        SimError: another text; `label` names the argument.
    """
    try:
        return parse_sizes(text)
    except BenchError as error:
        raise SimError(str(error).replace("bytes:", f"{label}:", 1)) from None


@dataclass(frozen=True)
class Plan:
    """What to simulate: every combination of algorithm, ranks and bytes is one point.

    Attributes:
        operation: a collective operation, or BOOTSTRAP.
        algorithms: names of algorithms; empty: all of the operation. Must be empty for BOOTSTRAP.
        ranks: numbers of ranks.
        bytes: sizes of the vector, or of each rank's block; not used for "barrier" and BOOTSTRAP.
        settings: fields of the model by name, as `_comms._simulate_collective` takes them:
            latency_us, overhead_us, gap_us, byte_ns (each also with the prefix local_), local_size,
            rails, hosts_per_leaf, oversubscription, spine_us, compute_ns, seed, drop, delay, ...
    """

    operation: str
    algorithms: Sequence[str]  # empty: all of the operation; always empty for BOOTSTRAP
    ranks: Sequence[int]
    bytes: Sequence[int] = ()
    settings: Mapping[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raises SimError for the first wrong value, with the allowed ones."""
        known = algorithms()
        if self.operation != BOOTSTRAP and self.operation not in known:
            allowed = ", ".join([BOOTSTRAP, *known])
            raise SimError(f"unknown operation {self.operation!r}; allowed: {allowed}")
        if self.operation == BOOTSTRAP and self.algorithms:
            raise SimError("bootstrap has only one algorithm: omit --algorithm")
        for name in self.algorithms:
            if name not in known[self.operation]:
                raise SimError(
                    f"unknown algorithm {name!r} of {self.operation}; "
                    f"allowed: {', '.join(known[self.operation])}"
                )
        for count in self.ranks:
            if count > MAX_RANKS:
                raise SimError(f"ranks: {count} is above the maximum, {MAX_RANKS}")
        for name, (least, most) in WHOLE.items():
            value = self.settings.get(name, least)
            if not least <= value <= most:
                raise SimError(f"{name}: {value} is not from {least} to {most}")

    def cases(self) -> Iterator[tuple[str, int, int]]:
        """Yields algorithm, ranks and bytes of every point."""
        if self.operation == BOOTSTRAP:
            for ranks in self.ranks:
                yield "exchange", ranks, int(self.settings.get("blob_bytes", 128))
            return
        sizes = [0] if self.operation == "barrier" else self.bytes
        for size in sizes:
            for ranks in self.ranks:
                for name in self.algorithms or algorithms()[self.operation]:
                    yield name, ranks, size
