"""Decodes bytes to objects.

The bytes cannot cause an import, a call, or an allocation larger than themselves. The exception are
files of torch.save, which torch.load(weights_only=True) reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchcomms.objcol import _allowed, _arrays, _torch
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
        return form.unpack(self._take(form.size))[0]

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

    def _tensor(self) -> torch.Tensor:
        self._budget.take(0)
        return _arrays.make_tensor(self.value(), self._device)

    def _torch_file(self) -> Any:  # noqa: ANN401
        self._own_hashes += 1
        return _torch.load(self._sized(), self._device, self._budget)

    def _converted(self) -> Any:  # noqa: ANN401
        row = _allowed.of_name(self._text())
        self._own_hashes += row.own_hash
        return row.from_data(self.value())


_READERS: dict[int, Callable[[_Reader], Any]] = {
    f.NONE: lambda r: r._constant(None),
    f.TRUE: lambda r: r._constant(True),
    f.FALSE: lambda r: r._constant(False),
    f.INT: lambda r: r._number(f.INTEGER),
    f.BIG: lambda r: int.from_bytes(r._sized(), "little", signed=True),
    f.FLOAT: lambda r: r._number(f.REAL),
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
    f.CONVERTED: _Reader._converted,
}
