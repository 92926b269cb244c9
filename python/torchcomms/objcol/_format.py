"""The bytes of an object: a magic number, then one value. A value is a tag and its content.

Counts and lengths are 8 bytes, little-endian. There are no references: an object that occurs twice
in a message is written twice.
"""

from __future__ import annotations

import struct
from typing import Any

MAGIC = b"TCO\x01"
DEPTH_MAX = 128  # levels of nested containers
# The approximate memory of a value in the reader, beside its bytes. With it a cap limits memory.
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
    """Why an object cannot be sent as data. The caller adds the rank, the call and the advice."""


class Over(Exception):
    """Which limit of size or depth an object exceeds. The caller adds the rank and the call."""


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
