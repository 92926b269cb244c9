"""Decodes bytes to objects.

The bytes cannot cause an import, a call, or an allocation larger than themselves. The exception are
files of torch.save, which torch.load(weights_only=True) reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchcomms.objcol import _allowed, _arrays, _plain, _torch
from torchcomms.objcol import _format as f
from torchcomms.objcol._format import Over, Refused


def decode(raw: memoryview, max_bytes: int, device: torch.device) -> Any:  # noqa: ANN401
    """Returns the object. Raises Refused for wrong bytes, Over if the object exceeds the cap.

    Tensors that were on an accelerator go to `device` if it is of the same type, else to the CPU.
    """
    reader = _Reader(raw, max_bytes, device)
    try:
        return reader.message()
    except (Refused, Over):
        raise
    except Exception as error:
        raise Refused(f"the bytes are damaged: {type(error).__name__}: {error}") from error


class _Reader:
    def __init__(self, raw: memoryview, max_bytes: int, device: torch.device) -> None:
        self._raw = raw
        self._at = 0
        self._budget = f.Budget(max_bytes)
        self._device = device
        self._own_hashes = 0  # objects so far whose class has its own __hash__

    def message(self) -> Any:  # noqa: ANN401
        if bytes(self._take(min(len(f.MAGIC), len(self._raw)))) != f.MAGIC:
            raise Refused("the bytes do not start with the magic number of an object")
        value = self.value()
        if self._at != len(self._raw):
            raise Refused(f"{len(self._raw) - self._at} surplus bytes after the object")
        return value

    def value(self) -> Any:  # noqa: ANN401
        tag = self._take(1)[0]
        reader = _READERS.get(tag)
        if reader is None:
            raise Refused(f"unknown tag {tag} at byte {self._at - 1}")
        with self._budget:
            return reader(self)

    def _take(self, size: int) -> memoryview:
        if size > len(self._raw) - self._at:
            raise Refused(
                f"expected {size} bytes at byte {self._at}, but received {len(self._raw)} in total"
            )
        self._at += size
        return self._raw[self._at - size : self._at]

    def _constant(self, value: Any) -> Any:  # noqa: ANN401
        self._budget.take(0)
        return value

    def _number(self, form: Any) -> Any:  # noqa: ANN401
        self._budget.take(form.size)
        return form.unpack(self._take(form.size))

    def _sized(self) -> memoryview:
        (size,) = f.COUNT.unpack(self._take(f.COUNT.size))
        raw = self._take(size)
        self._budget.take(size)
        return raw

    def _text(self) -> str:
        return str(self._sized(), "utf-8", "surrogatepass")

    def _count(self) -> int:
        self._budget.take(f.COUNT.size)
        (count,) = f.COUNT.unpack(self._take(f.COUNT.size))
        if count > len(self._raw) - self._at:  # each value takes at least one byte
            raise Refused(f"expected {count} values at byte {self._at}, but the bytes end earlier")
        return int(count)

    def _list(self) -> list[Any]:
        return [self.value() for _ in range(self._count())]

    def _key(self) -> Any:  # noqa: ANN401
        before = self._own_hashes
        value = self.value()
        if self._own_hashes != before:
            raise Refused(f"a key of the class {type(value).__qualname__} would run its __hash__")
        return value

    def _keys(self) -> list[Any]:
        return [self._key() for _ in range(self._count())]

    def _dict(self) -> dict[Any, Any]:
        return {self._key(): self.value() for _ in range(self._count())}

    def _memory(self) -> tuple[memoryview, Any]:
        raw = self._sized()
        return raw, self.value()

    def _tensor(self) -> torch.Tensor:
        raw, about = self._memory()
        return _arrays.make_tensor(about, raw, self._device)

    def _torch_file(self) -> Any:  # noqa: ANN401
        self._own_hashes += 1
        return _torch.load(self._sized(), self._device, self._budget)

    def _array(self) -> Any:  # noqa: ANN401
        raw, about = self._memory()
        return _arrays.make_array(about, raw)

    def _scalar(self) -> Any:  # noqa: ANN401
        array = self._array()
        if array.shape != ():
            raise Refused(f"a numpy scalar cannot have shape {array.shape}")
        return array[()]

    def _converted(self, rows: dict[str, _allowed.Registered]) -> Any:  # noqa: ANN401
        name = self._text()
        row = rows.get(name)
        if row is None or row.from_data is None:
            raise Refused(f"the type {name!r} is not registered here")
        return row.from_data(self.value())

    def _class(self, kind: str) -> type:
        cls = _allowed.find(self._text())
        if _allowed.kind_of(cls) != kind:
            raise Refused(f"{_allowed.full_name(cls)} is not a {kind} in this process")
        self._own_hashes += _allowed.hashes_itself(cls, kind)
        return cls

    def _data_class(self) -> Any:  # noqa: ANN401
        return _allowed.fill(self._class(_allowed.DATACLASS), self._of(dict))

    def _named_tuple(self) -> Any:  # noqa: ANN401
        cls = self._class(_allowed.NAMEDTUPLE)
        values = self._of(list)
        if len(values) != len(cls._fields):  # type: ignore[attr-defined]
            raise Refused(
                f"received {len(values)} values for the namedtuple {_allowed.full_name(cls)}"
            )
        return tuple.__new__(cls, values)

    def _member(self) -> Any:  # noqa: ANN401
        cls = self._class(_allowed.ENUM)
        return _allowed.member(cls, self._of(list))

    def _of(self, kind: type) -> Any:  # noqa: ANN401
        value = self.value()
        if type(value) is not kind:
            raise Refused(f"expected a {kind.__name__} at byte {self._at}")
        return value


_READERS: dict[int, Callable[[_Reader], Any]] = {
    f.NONE: lambda r: r._constant(None),
    f.TRUE: lambda r: r._constant(True),
    f.FALSE: lambda r: r._constant(False),
    f.INT: lambda r: r._number(f.INTEGER)[0],
    f.BIG: lambda r: int.from_bytes(r._sized(), "little", signed=True),
    f.FLOAT: lambda r: r._number(f.REAL)[0],
    f.COMPLEX: lambda r: complex(*r._number(f.PAIR)),
    f.TEXT: _Reader._text,
    f.BYTES: lambda r: bytes(r._sized()),
    f.BYTEARRAY: lambda r: bytearray(r._sized()),
    f.LIST: _Reader._list,
    f.TUPLE: lambda r: tuple(r._list()),
    f.DICT: _Reader._dict,
    f.SET: lambda r: set(r._keys()),
    f.FROZENSET: lambda r: frozenset(r._keys()),
    f.TENSOR: _Reader._tensor,
    f.TORCH_FILE: _Reader._torch_file,
    f.ARRAY: _Reader._array,
    f.SCALAR: _Reader._scalar,
    f.DTYPE: lambda r: _arrays.make_dtype(r.value()),
    f.PLAIN: lambda r: r._converted(_plain.BY_NAME),
    f.REGISTERED: lambda r: r._converted(_allowed.by_name),
    f.CLASS_DATA: _Reader._data_class,
    f.CLASS_TUPLE: _Reader._named_tuple,
    f.MEMBER: _Reader._member,
}
