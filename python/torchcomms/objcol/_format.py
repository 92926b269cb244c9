"""The bytes of an object: a magic number, then one value. A value is a tag and its content.

Counts and lengths are 8 bytes, little-endian. There are no references: an object that occurs twice
in a message is written twice.

Files of torch.load(weights_only=True) are not the format of all objects, because it refuses 39 of
79 values that the tests send (b"", frozenset, datetime, numpy arrays, dataclasses, namedtuples,
enums), allocates 1 GiB for a file of 1 KB, and hashes for 1.4 s if 26 tuples in such a file contain
each other twice, and twice as long for each further one. They are also slower for small objects: to
write and read a dict of two entries takes 67 us (p99 273 us) and 1,261 bytes, but 12 us (p99 14 us)
and 76 bytes in this format, on one CPU core.
"""

from __future__ import annotations

import struct
from typing import Any

MAGIC = b"TCO\x02"
DEPTH_MAX = 128  # levels of nested containers
# The approximate memory of a value in the reader, beside its bytes. With it a cap limits memory.
VALUE_BYTES = 64

NONE, TRUE, FALSE, INT, BIG, FLOAT, TEXT, BYTES, BYTEARRAY = b"NTFiIfsbB"
LIST, TUPLE, DICT, SET, FROZENSET = b"ltdSZ"
# A tensor is its tag and a tuple; a converted instance the name of its class and the data.
TENSOR, CONVERTED, TORCH_FILE = b"XOV"

COUNT = struct.Struct("<Q")
INTEGER = struct.Struct("<q")
REAL = struct.Struct("<d")


class Refused(Exception):
    """Why an object cannot be sent as data. The caller adds the rank, the call and the advice."""


class Over(Exception):
    """Which limit of size or depth an object exceeds. The caller adds the rank and the call."""


def expect(data: Any, kind: type) -> Any:  # noqa: ANN401
    """Returns `data`. Raises Refused unless it is of exactly this type."""
    if type(data) is not kind:
        raise Refused(f"expected a {kind.__name__}, received a {type(data).__name__}")
    return data


def expect_names(data: Any) -> dict[str, Any]:  # noqa: ANN401
    """Returns `data`. Raises Refused unless it is a dict whose keys are str."""
    for name in expect(data, dict):
        expect(name, str)
    return data  # type: ignore[no-any-return]


class Budget:
    """The rest of a cap in bytes, and of the nesting depth. Raises Over before memory is allocated.

    Entering the budget as a context manager goes one level deeper.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._left = max_bytes
        self._depth = 0

    def take(self, size_bytes: int) -> None:
        """Takes one value with `size_bytes` of content from the budget. Raises Over."""
        self._left -= VALUE_BYTES + size_bytes
        if self._left < 0:
            raise Over(
                f"an object takes more than max_bytes={self.max_bytes} (each value counts"
                f" {VALUE_BYTES} bytes and its content)"
            )

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Over(f"an object is nested deeper than {DEPTH_MAX}, or contains itself")

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        self._depth -= 1
