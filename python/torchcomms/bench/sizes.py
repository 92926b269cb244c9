"""Parses message sizes: `8`, `1K`, `1K:64M` (doubling), `1K:64M:4` (times four), comma lists."""

from __future__ import annotations

import re

from torchcomms.bench.errors import BenchError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MAX_SIZE = 1 << 40  # so that sums over a million ranks fit 64 bits
_SIZE = re.compile(r"(\d{1,30})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_FACTOR = re.compile(r"\d{1,30}")
_ALLOWED = "allowed: 8, 1K, 16M, 1G, a range 1K:64M (doubling) or 1K:64M:4, and lists of these"


def parse_size(text: str) -> int:
    """Parses "64K" to 65536. K, M and G are powers of 1024. Raises BenchError."""
    match = _SIZE.fullmatch(text.strip())
    if not match or int(match[1]) == 0:
        raise BenchError(f"bytes: {text!r} is not a size; {_ALLOWED}")
    size = int(match[1]) * _UNITS[match[2].upper()]
    if size > MAX_SIZE:
        raise BenchError(f"bytes: {text!r} is over {MAX_SIZE >> 30}G")
    return size


def parse_sizes(text: str) -> list[int]:
    """Parses "8,1K:4K" to [8, 1024, 2048, 4096]: ascending, without repetitions.

    Raises:
        BenchError: another text.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        sizes.update(_parse_range(part))
    return sorted(sizes)


def _parse_range(text: str) -> list[int]:
    ends = text.split(":")
    if len(ends) == 1:
        return [parse_size(text)]
    if len(ends) > 3:
        raise BenchError(f"bytes: {text!r} is not a range; {_ALLOWED}")
    first, last = parse_size(ends[0]), parse_size(ends[1])
    factor = 2
    if len(ends) == 3:
        if not _FACTOR.fullmatch(ends[2].strip()) or int(ends[2]) < 2:
            raise BenchError(f"bytes: the factor in {text!r} must be a whole number from 2 on")
        factor = int(ends[2])
    if last < first:
        raise BenchError(f"bytes: {text!r} ends below its start")
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return sizes
