"""Types of the standard library and of torch that are converted to simpler data."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from torchcomms.objcol._allowed import Conversion, register
from torchcomms.objcol._format import Refused, expect, expect_names

_FRACTION_BITS = 1 << 15
_FACTORIES: dict[str, type | None] = {
    "None": None,
    **{kind.__name__: kind for kind in (list, dict, set, int, float, str, tuple, bool, bytes)},
}
_PLAIN = frozenset(
    [type(None), bool, int, float, str, bytearray, datetime.timedelta, datetime.timezone,
     datetime.date, datetime.time]
)  # fmt: skip


def is_plain(data: object) -> bool:
    """Returns: whether `data` and what it contains are of types without code of a program.

    A conversion may call methods of such data.
    """
    if type(data) in (tuple, list):
        return all(map(is_plain, data))  # type: ignore[call-overload]
    return type(data) in _PLAIN


def plain_conversion(
    name: str, to_data: Callable[[Any], tuple[Any, ...]], make: Callable[..., Any]
) -> Conversion:
    """Returns a conversion to the arguments of `make`, which must be plain."""

    def from_data(data: Any) -> Any:  # noqa: ANN401
        if type(data) is not tuple or not is_plain(data):
            raise Refused(f"the content of a {name} is a {type(data).__name__}, or is not plain")
        return make(*data)

    return Conversion(name, to_data, from_data)


def _named(kind: type) -> dict[str, Any]:
    """torch's constants of a type, by their printed name."""
    return {str(value): value for value in vars(torch).values() if type(value) is kind}


_CONSTANTS: dict[type, dict[str, Any]] = {
    kind: _named(kind) for kind in (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
}


def constant(kind: type, name: str) -> Any:  # noqa: ANN401
    """Returns torch.float32 for (torch.dtype, "torch.float32"). Raises Refused."""
    if expect(name, str) not in _CONSTANTS[kind]:
        raise Refused(f"this torch has no {kind.__name__} {name!r}")
    return _CONSTANTS[kind][name]


def _of_dict(value: Any) -> Any:  # noqa: ANN401
    """Returns the items and the attributes, as of a module's state_dict()."""
    return dict(value), dict(vars(value))


def _to_dict(kind: type, data: Any) -> Any:  # noqa: ANN401
    items, attributes = expect(data, tuple)
    instance = kind(expect(items, dict))
    vars(instance).update(expect_names(attributes))
    return instance


def _default_dict(data: Any) -> Any:  # noqa: ANN401
    name, items = expect(data, tuple)
    return collections.defaultdict(_FACTORIES[expect(name, str)], expect(items, dict))


def _factory_name(factory: Any) -> str:  # noqa: ANN401
    name = getattr(factory, "__name__", "None")
    if name not in _FACTORIES or _FACTORIES[name] is not factory:
        raise Refused(f"a defaultdict with the default_factory {factory!r} contains code")
    return str(name)


def _deque(data: Any) -> Any:  # noqa: ANN401
    items, most = expect(data, tuple)
    return collections.deque(expect(items, list), most if most is None else expect(most, int))


def _fixed(zone: datetime.tzinfo | None) -> datetime.tzinfo | None:
    if zone is None or type(zone) is datetime.timezone:
        return zone
    raise Refused(f"the time zone {zone!r} is not a fixed offset")


def _fraction(above: int, below: int) -> Any:  # noqa: ANN401
    """Makes small fractions only: reducing a fraction of huge numbers takes long."""
    if max(above.bit_length(), below.bit_length()) > _FRACTION_BITS:
        raise Refused(f"a fraction has numbers of more than {_FRACTION_BITS} bits")
    return fractions.Fraction(above, below)


_CONTAINERS: list[tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = [
    *((kind, _of_dict, partial(_to_dict, kind))
      for kind in (collections.OrderedDict, collections.Counter)),
    (collections.defaultdict, lambda v: (_factory_name(v.default_factory), dict(v)), _default_dict),
    (collections.deque, lambda v: (list(v), v.maxlen), _deque),
    (slice, lambda v: (v.start, v.stop, v.step), lambda d: slice(*expect(d, tuple))),
    (torch.UntypedStorage, lambda v: torch.empty(0, dtype=torch.uint8, device=v.device).set_(v),
     lambda d: expect(d, torch.Tensor).untyped_storage()),
]  # fmt: skip

_OTHERS: list[tuple[type, Callable[[Any], tuple[Any, ...]], Callable[..., Any]]] = [
    (complex, lambda v: (v.real, v.imag), complex),
    (range, lambda v: (v.start, v.stop, v.step), range),
    (type(...), lambda _: (), lambda: ...),
    (decimal.Decimal, lambda v: (str(v),), decimal.Decimal),
    (fractions.Fraction, lambda v: (v.numerator, v.denominator), _fraction),
    (datetime.timedelta, lambda v: (v.days, v.seconds, v.microseconds), datetime.timedelta),
    (datetime.timezone, lambda v: (v.utcoffset(None),), datetime.timezone),
    (datetime.date, lambda v: (v.isoformat(),), datetime.date.fromisoformat),
    (datetime.time, lambda v: (v.hour, v.minute, v.second, v.microsecond, _fixed(v.tzinfo), v.fold),
     lambda h, m, s, us, zone, fold: datetime.time(h, m, s, us, zone, fold=fold)),
    (datetime.datetime, lambda v: (v.date(), v.timetz()), datetime.datetime.combine),
    (uuid.UUID, lambda v: (v.int,), lambda number: uuid.UUID(int=number)),
    (pathlib.PurePosixPath, lambda v: (str(v),), pathlib.PurePosixPath),
    (pathlib.PosixPath, lambda v: (str(v),), pathlib.PosixPath),
    (torch.Size, tuple, lambda *sizes: torch.Size(sizes)),
    (torch.device, lambda v: (str(v),), lambda name: torch.device(expect(name, str))),
    *((kind, lambda v: (str(v),), partial(constant, kind)) for kind in _CONSTANTS),
]  # fmt: skip

# Python moves some classes from module to module. The colon is for no class of a program.
for _cls, _to, _from in _CONTAINERS:
    register(_cls, Conversion(f":{_cls.__name__}", _to, _from))
for _cls, _to, _make in _OTHERS:
    register(_cls, plain_conversion(f":{_cls.__name__}", _to, _make))
