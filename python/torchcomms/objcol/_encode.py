"""Encodes objects to bytes. An object that is not data is refused, with the name of its class."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from torchcomms.objcol import _allowed, _arrays, _torch
from torchcomms.objcol import _format as f
from torchcomms.objcol._format import Refused


def encode(value: object, max_bytes: int) -> bytes:
    """Returns the bytes of `value`. Raises Refused if it is not data, Over beyond `max_bytes`."""
    writer = _Writer(max_bytes)
    writer.value(value)
    return b"".join(writer.parts)


class _Writer:
    def __init__(self, max_bytes: int) -> None:
        self.parts: list[bytes | bytearray] = [f.MAGIC]
        self._budget = f.Budget(max_bytes)
        self._own_hashes = 0  # objects so far whose class has its own __hash__

    def value(self, value: Any) -> None:  # noqa: ANN401
        cls = type(value)
        writer = _WRITERS.get(cls)
        with self._budget:
            if writer is not None:
                writer(self, value)
            else:
                self._composite(cls, value)

    def _composite(self, cls: type, value: Any) -> None:  # noqa: ANN401
        row = _allowed.by_class.get(cls) or _arrays.of_numpy_class(cls)
        try:
            if row is None and isinstance(value, torch.Tensor):
                data = _arrays.describe_tensor(value)
            else:
                row = row or _allowed.of_class(cls)
                data = row.to_data(value)
        except Refused as why:
            self._own_hashes += 1
            self._sized(f.TORCH_FILE, _torch.dump(value, why, self._budget))
            return
        if row is None:
            self._tag(f.TENSOR)
        else:
            self._own_hashes += row.own_hash
            self._sized(f.CONVERTED, row.name.encode())
        self.value(data)

    def _tag(self, tag: int, raw: bytes = b"") -> None:
        self._budget.take(len(raw))
        self.parts.append(bytes((tag,)) + raw)

    def _sized(self, tag: int, raw: bytes | bytearray) -> None:
        self._budget.take(len(raw))
        self.parts += (bytes((tag,)), f.COUNT.pack(len(raw)), raw)

    def _all(self, tag: int, values: Collection[Any]) -> None:
        self._tag(tag, f.COUNT.pack(len(values)))
        for value in values:
            self.value(value)

    def _key(self, value: Any) -> None:  # noqa: ANN401
        before = self._own_hashes
        self.value(value)
        if self._own_hashes != before:
            raise Refused(f"the key {value!r:.80} would run __hash__ of its class")

    def _keys(self, tag: int, values: Collection[Any]) -> None:
        self._tag(tag, f.COUNT.pack(len(values)))
        for value in values:
            self._key(value)

    def _dict(self, value: dict[Any, Any]) -> None:
        self._tag(f.DICT, f.COUNT.pack(len(value)))
        for key, item in value.items():
            self._key(key)
            self.value(item)

    def _integer(self, value: int) -> None:
        if -(1 << 63) <= value < 1 << 63:
            self._tag(f.INT, f.INTEGER.pack(value))
        else:
            size = value.bit_length() // 8 + 1
            self._sized(f.BIG, value.to_bytes(size, "little", signed=True))


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): lambda w, _: w._tag(f.NONE),
    bool: lambda w, v: w._tag(f.TRUE if v else f.FALSE),
    int: _Writer._integer,
    float: lambda w, v: w._tag(f.FLOAT, f.REAL.pack(v)),
    str: lambda w, v: w._sized(f.TEXT, v.encode("utf-8", "surrogatepass")),
    bytes: lambda w, v: w._sized(f.BYTES, v),
    bytearray: lambda w, v: w._sized(f.BYTEARRAY, v),
    list: lambda w, v: w._all(f.LIST, v),
    tuple: lambda w, v: w._all(f.TUPLE, v),
    dict: _Writer._dict,
    set: lambda w, v: w._keys(f.SET, v),
    frozenset: lambda w, v: w._keys(f.FROZENSET, v),
}
