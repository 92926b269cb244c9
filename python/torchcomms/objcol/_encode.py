"""Encodes objects to bytes. An object that is not data is refused, with the name of its class."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Collection
from typing import Any

import torch

from torchcomms.objcol import _allowed, _arrays, _plain, _torch
from torchcomms.objcol import _format as f
from torchcomms.objcol._format import Refused


def encode(value: object, max_bytes: int) -> bytes:
    """Returns the bytes of `value`. Raises Refused if it is not data, Over beyond `max_bytes`."""
    writer = _Writer(max_bytes)
    writer.value(value)
    return b"".join(writer.parts)


class _Writer:
    def __init__(self, max_bytes: int) -> None:
        self.parts: list[bytes] = [f.MAGIC]
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
        row = _allowed.by_class.get(cls)
        if row is not None and row.to_data is not None:
            self._named(f.REGISTERED, row.name)
            self.value(row.to_data(value))
        elif plain := _plain.BY_CLASS.get(cls):
            assert plain.to_data is not None
            self._named(f.PLAIN, plain.name)
            self.value(plain.to_data(value))
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif not self._numpy(cls, value):
            self._of_class(cls, value, row)

    def _numpy(self, cls: type, value: Any) -> bool:  # noqa: ANN401
        """Writes a numpy object. Returns: whether it was one; False if numpy is not imported."""
        numpy: Any = sys.modules.get("numpy")
        if numpy is None:
            return False
        if cls is numpy.ndarray:
            self._memory(f.ARRAY, *_arrays.describe_array(value))
        elif isinstance(value, numpy.generic):
            self._memory(f.SCALAR, *_arrays.describe_array(value))
        elif isinstance(value, numpy.dtype):
            self._tag(f.DTYPE)
            self.value(_arrays.describe_dtype(value))
        else:
            return False
        return True

    def _tensor(self, value: torch.Tensor) -> None:
        try:
            about, raw = _arrays.describe_tensor(value)
        except Refused as why:
            self._torch_file(value, why)
        else:
            self._memory(f.TENSOR, about, raw)

    def _torch_file(self, value: Any, why: Refused) -> None:  # noqa: ANN401
        self._sized(f.TORCH_FILE, _torch.dump(value, why, self._budget))
        self._own_hashes += 1

    def _of_class(self, cls: type, value: Any, row: _allowed.Registered | None) -> None:  # noqa: ANN401
        try:
            kind, name = _kind_and_name(cls, row)
            if kind != _allowed.ENUM and row is None:
                _allowed.check_state(cls, value)
        except Refused as why:
            self._torch_file(value, why)
            return
        self._own_hashes += _allowed.hashes_itself(cls, kind)
        if kind == _allowed.ENUM:
            self._named(f.MEMBER, name)
            self.value(_names(cls, value))
        elif kind == _allowed.NAMEDTUPLE:
            self._named(f.CLASS_TUPLE, name)
            self.value(list(tuple.__iter__(value)))
        else:
            self._named(f.CLASS_DATA, name)
            fields = type.__getattribute__(cls, "__dataclass_fields__")
            self.value({n: getattr(value, n) for n in fields if _has(value, n, fields[n])})

    def _tag(self, tag: int, raw: bytes = b"") -> None:
        self._budget.take(len(raw))
        self.parts.append(bytes((tag,)) + raw)

    def _sized(self, tag: int, raw: bytes) -> None:
        self._budget.take(len(raw))
        self.parts += (bytes((tag,)), f.COUNT.pack(len(raw)), raw)

    def _named(self, tag: int, name: str) -> None:
        self._sized(tag, name.encode())

    def _memory(self, tag: int, about: tuple[Any, ...], raw: bytes) -> None:
        self._sized(tag, raw)
        self.value(about)

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


def _kind_and_name(cls: type, row: _allowed.Registered | None) -> tuple[str, str]:
    """Raises Refused for a class whose instances the reader could not make."""
    kind = _allowed.kind_of(cls)
    name = row.name if row is not None else _allowed.full_name(cls)
    if row is None and _allowed.find(name) is not cls:
        raise Refused(f"{name}: another class has this name")
    if kind == _allowed.DATACLASS:
        _allowed.blank(cls)
    return kind, name


def _names(cls: type, value: enum.Enum) -> list[str]:
    """The member's name, or the names of the flags that it combines."""
    members = type.__getattribute__(cls, "_member_map_")
    if value._name_ is not None and value._name_ in members:
        return [value._name_]
    parts = [name for name, part in members.items() if part in value]  # type: ignore[operator]
    if _allowed.member(cls, parts) != value:
        raise Refused(f"{value!r} is not a combination of members of {_allowed.full_name(cls)}")
    return parts


def _has(value: object, name: str, field: Any) -> bool:  # noqa: ANN401
    real = field._field_type.name == "_FIELD"  # neither a ClassVar nor an InitVar
    return real and hasattr(value, name)


_WRITERS: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): lambda w, _: w._tag(f.NONE),
    bool: lambda w, v: w._tag(f.TRUE if v else f.FALSE),
    int: _Writer._integer,
    float: lambda w, v: w._tag(f.FLOAT, f.REAL.pack(v)),
    complex: lambda w, v: w._tag(f.COMPLEX, f.PAIR.pack(v.real, v.imag)),
    str: lambda w, v: w._sized(f.TEXT, v.encode("utf-8", "surrogatepass")),
    bytes: lambda w, v: w._sized(f.BYTES, v),
    bytearray: lambda w, v: w._sized(f.BYTEARRAY, bytes(v)),
    list: lambda w, v: w._all(f.LIST, v),
    tuple: lambda w, v: w._all(f.TUPLE, v),
    dict: _Writer._dict,
    set: lambda w, v: w._keys(f.SET, v),
    frozenset: lambda w, v: w._keys(f.FROZENSET, v),
}
