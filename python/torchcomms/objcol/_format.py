"""The bytes of an object: a mark, then one value. A value is a tag and what follows it.

Counts and lengths are 8 bytes, little-endian. There are no references: an object that is in a
message twice is written twice.
"""

from __future__ import annotations

import struct
from typing import Any

MAGIC = b"TCO\x01"
DEPTH_MAX = 128  # containers in containers
# What a value takes in the reader's memory besides its bytes, about: so a cap on memory holds.
VALUE_BYTES = 64

NONE, TRUE, FALSE, INT, BIG, FLOAT, COMPLEX, TEXT, BYTES, BYTEARRAY = b"NTFiIfcsbB"
LIST, TUPLE, DICT, SET, FROZENSET = b"ltdSZ"
TENSOR, ARRAY, SCALAR, DTYPE, PLAIN = b"XnghP"
REGISTERED, CLASS_DATA, CLASS_TUPLE, MEMBER = b"ROUE"
TORCH_FILE = b"V"[0]

COUNT = struct.Struct("<Q")
INTEGER = struct.Struct("<q")
REAL = struct.Struct("<d")
PAIR = struct.Struct("<dd")


class Refused(Exception):
    """Why something cannot travel as data; the caller adds who, where and what to do."""


class Over(Exception):
    """Which limit of size or depth something is over; the caller adds who and where."""


class Budget:
    """What is left of a cap in bytes, and of the depth. Raises Over before anything is made.

    Entering it is one level deeper.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._left = max_bytes
        self._depth = 0

    def take(self, size_bytes: int) -> None:
        """One value with that many bytes of its own."""
        self._left -= VALUE_BYTES + size_bytes
        if self._left < 0:
            raise Over(
                f"an object takes more than max_bytes={self.max_bytes} (each value counts"
                f" {VALUE_BYTES} bytes and its content)"
            )

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Over(f"an object is nested deeper than {DEPTH_MAX}, or holds itself")

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        self._depth -= 1
