"""Checks what torch.load would make of a file before torch.load reads it.

The file's pickle is run with stand-ins for torch's functions. They accept only calls that
torch.save writes, with such arguments, and count the memory. torch.load itself accepts more: for
it, torch.UntypedStorage(1 << 40) is data.
"""

from __future__ import annotations

import io
import math
import pickle
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import torch

from torchcomms.objcol import _format as f
from torchcomms.objcol._format import Over, Refused

_STEPS = (
    "PROTO", "STOP", "GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPERSID", "MARK", "BINPUT",
    "LONG_BINPUT", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS",
)  # fmt: skip
_PROTOCOL = 2
_WIDEST = 16  # bytes of the largest element
_DIMENSIONS_MAX = 64


def check_pickle(pkl: bytes, budget: f.Budget) -> None:
    """Takes from `budget` the memory of the pickle's objects beside its bytes; each step is a
    value, and a tuple that is used again counts as often as it is used.

    Raises: Over beyond the budget, Refused for anything that torch.save does not write.
    """
    try:
        _CheckedUnpickler(pkl, budget).load()
    except (Refused, Over):
        raise
    except Exception as error:
        raise Refused(f"the pickle in a file of torch.save is damaged: {error!r}") from error


class _Placeholder:
    """The stand-in for the result of a call, or for a function."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        # No message has the content of a file: its text can be much longer than the file.
        raise Refused(
            f"torch.save does not write the state ({_kind(state)}) of a {type(self).__name__[1:]}"
        )


class _Storage(_Placeholder):
    __slots__ = ("elements",)

    def __init__(self, elements: int) -> None:
        self.elements = elements


class _Function(_Placeholder):
    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *arguments: object) -> Any:  # noqa: ANN401
        return self._run(*arguments)


class _Name(_Placeholder):
    """The stand-in for a dtype or a class that is only passed on.

    torch.load itself would call it if the file says so.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object) -> NoReturn:
        raise Refused(f"torch.save does not write a call of {self._name}")


class _Trusted(_Placeholder):
    """The stand-in for a class that torch was told to trust; its instances are not checked."""

    def __new__(cls, *_: object) -> _Trusted:
        return object.__new__(cls)

    def __init__(self, *_: object) -> None:
        pass


def _counted(name: str) -> Callable[[Any], None]:
    """Returns the reader's function for an opcode. The function also counts the step."""
    load: Any = pickle._Unpickler.dispatch[getattr(pickle, name)[0]]

    def step(unpickler: _CheckedUnpickler) -> None:
        load(unpickler)
        unpickler.count(name)

    return step


# The base class is pickle's reader in Python. The one in C cannot count the steps of a pickle.
class _CheckedUnpickler(pickle._Unpickler):
    proto: int
    stack: list[Any]
    dispatch = {getattr(pickle, name)[0]: _counted(name) for name in _STEPS}  # noqa: RUF012

    def __init__(self, pkl: bytes, budget: f.Budget) -> None:
        super().__init__(io.BytesIO(pkl))
        self._budget = budget
        self._unfolded: dict[int, int] = {}  # elements of a tuple, with those of tuples in it
        self._trusted = self._with_state(_Trusted)
        self._calls: dict[str, Callable[..., Any]] = {
            "builtins.bytearray": self._bytearray,
            "builtins.complex": self._plain,
            "builtins.set": self._container(set, list),
            "collections.Counter": self._container(self._with_state(Counter), dict),
            "collections.OrderedDict": self._container(self._with_state(OrderedDict), dict),
            "_codecs.encode": self._bytes,
            "torch.Size": self._container(torch.Size, tuple),
            "torch.device": self._plain,
            "torch.serialization._get_layout": self._plain,
            "torch._tensor._rebuild_from_type_v2": self._of_type,
            "torch._utils._rebuild_meta_tensor_no_storage": self._plain,
            "torch._utils._rebuild_parameter": self._plain,
            "torch._utils._rebuild_parameter_with_state": self._plain,
            "torch._utils._rebuild_qtensor": self._tensor,
            "torch._utils._rebuild_sparse_tensor": self._plain,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._tensor,
        }

    def count(self, name: str) -> None:
        """Takes from the budget the step that was just made."""
        if self.proto != _PROTOCOL:
            raise Refused(f"torch.save does not write pickles of protocol {self.proto}")
        repeated = 0
        if name.startswith("TUPLE"):
            made = self.stack[-1]
            self._unfolded[id(made)] = len(made) + sum(map(self._unfolded_size, made))
        elif name.endswith("GET"):
            # The hash of a tuple visits an element as often as it occurs. If each of 60 tuples
            # contains the previous one twice, the hash of the last one takes years.
            repeated = self._unfolded_size(self.stack[-1])
        self._budget.take(repeated * f.VALUE_BYTES)

    def _unfolded_size(self, value: object) -> int:
        if not isinstance(value, tuple):
            return 0
        return max(len(value), self._unfolded.get(id(value), 0))

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if (module, name) in NAME_MAPPING:
            module, name = NAME_MAPPING[module, name]
        full = f"{IMPORT_MAPPING.get(module, module)}.{name}"
        if full in self._calls:
            return _Function(self._calls[full])
        if full in _safe_globals():
            return self._trusted
        if full.startswith("torch."):
            return _Name(full)
        raise Refused(f"{full} is not among torch's safe globals here")

    def persistent_load(self, pid: Any) -> _Storage:  # noqa: ANN401
        kind, _type, _key, _location, elements = pid
        if kind != "storage" or type(elements) is not int:
            raise Refused(f"torch.save does not write a storage of {_kind(elements)} elements")
        return _Storage(elements)

    def _take(self, *copied: object) -> None:
        """Takes copies of these objects, and of the members of tuples, from the budget."""
        for one in copied:
            for part in (one, *one) if isinstance(one, tuple) else (one,):
                if isinstance(part, str | bytes):
                    self._budget.take(len(part))
                elif isinstance(part, Collection):
                    size = len(part) + sum(map(self._unfolded_size, part))
                    self._budget.take(size * f.VALUE_BYTES)

    def _with_state(self, cls: type) -> type:
        def set_state(_self: object, state: object) -> None:
            self._take(state)

        return type(cls.__name__, (cls,), {"__setstate__": set_state})

    def _plain(self, *arguments: object) -> _Placeholder:
        self._take(*arguments)
        return _Placeholder()

    def _container(self, cls: type, kind: type) -> Callable[..., Any]:
        def make(*content: object) -> object:
            if any(type(one) is not kind for one in content):
                raise Refused(f"torch.save does not write such content of a {cls.__name__}")
            self._take(*content)
            return cls(*content)

        return make

    def _bytes(self, text: object, encoding: object) -> bytes:
        if type(text) is not str or encoding != "latin1":
            raise Refused(f"torch.save does not write bytes as {_kind(text)} of another encoding")
        self._take(text)
        return text.encode("latin1")

    def _bytearray(self, content: object = b"") -> bytearray:
        if type(content) is not bytes:
            raise Refused(f"torch.save does not write a bytearray of {_kind(content)}")
        self._take(content)
        return bytearray(content)

    def _tensor(self, storage: Any, _offset: object, size: Any, *rest: object) -> _Placeholder:  # noqa: ANN401
        known = type(storage) is _Storage and len(size) <= _DIMENSIONS_MAX
        if not known or not all(type(n) is int for n in size):
            raise Refused(f"torch.save does not write a tensor of {_kind(storage)}, {_kind(size)}")
        self._take(size, *rest)
        # Elements beyond the storage are repeated ones, which some functions of torch write out.
        self._budget.take(max(0, math.prod(size) - storage.elements) * _WIDEST)
        return _Placeholder()

    def _of_type(self, make: Any, _type: object, arguments: Any, state: object) -> Any:  # noqa: ANN401
        self._take(state)
        return make(*arguments)


def _kind(value: object) -> str:
    return type(value).__name__


def _safe_globals() -> set[str]:
    given = torch.serialization.get_safe_globals()
    return {
        one[1] if isinstance(one, tuple) else f"{one.__module__}.{one.__qualname__}"
        for one in given
    }
