"""Types of the standard library and of torch that are converted to simpler data."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import uuid
from typing import Any

import torch

from torchcomms.objcol._allowed import Registered
from torchcomms.objcol._format import Refused

_FRACTION_BITS = 1 << 15
_FACTORIES: dict[str, type] = {
    kind.__name__: kind for kind in (list, dict, set, int, float, str, tuple, bool, bytes)
}


def _named(kind: type) -> dict[str, Any]:
    """torch's constants of a type, by their printed name."""
    return {str(value): value for value in vars(torch).values() if type(value) is kind}


_CONSTANTS: dict[type, dict[str, Any]] = {
    kind: _named(kind) for kind in (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
}


def constant(kind: type, name: object) -> Any:  # noqa: ANN401
    """Returns torch.float32 for (torch.dtype, "torch.float32"). Raises Refused."""
    if not isinstance(name, str) or name not in _CONSTANTS[kind]:
        raise Refused(f"this torch has no {kind.__name__} {name!r}")
    return _CONSTANTS[kind][name]


def _of_dict(value: Any) -> Any:  # noqa: ANN401
    """Returns the items and, if there are any, the attributes, as of a module's state_dict()."""
    attributes = vars(value)
    return (dict(value), attributes) if attributes else dict(value)


def _from_dict(kind: type) -> Any:  # noqa: ANN401
    def make(data: Any) -> Any:  # noqa: ANN401
        items, attributes = data if type(data) is tuple else (data, {})
        instance = kind(_expect(items, dict))
        for name in _expect(attributes, dict):
            _expect(name, str)
        vars(instance).update(attributes)
        return instance

    return make


def _expect(data: Any, kind: type) -> Any:  # noqa: ANN401
    if type(data) is not kind:
        raise Refused(f"expected a {kind.__name__}, received a {type(data).__name__}")
    return data


def _default_dict(data: Any) -> Any:  # noqa: ANN401
    name, items = data
    return collections.defaultdict(None if name is None else _FACTORIES[name], _expect(items, dict))


def _factory_name(factory: Any) -> str | None:  # noqa: ANN401
    if factory is None or _FACTORIES.get(getattr(factory, "__name__", "")) is factory:
        return None if factory is None else str(factory.__name__)
    raise Refused(f"a defaultdict with the default_factory {factory!r} contains code")


def _offset(zone: datetime.tzinfo | None) -> datetime.timedelta | None:
    if zone is None or type(zone) is datetime.timezone:
        return None if zone is None else zone.utcoffset(None)
    raise Refused(f"the time zone {zone!r} is not a fixed offset")


def _zone(offset: datetime.timedelta | None) -> datetime.timezone | None:
    return None if offset is None else datetime.timezone(_expect(offset, datetime.timedelta))


def _datetime(data: Any) -> Any:  # noqa: ANN401
    *parts, fold, offset = data
    return datetime.datetime(*parts, fold=fold, tzinfo=_zone(offset))  # type: ignore[misc]


def _time(data: Any) -> Any:  # noqa: ANN401
    *parts, fold, offset = data
    return datetime.time(*parts, fold=fold, tzinfo=_zone(offset))  # type: ignore[misc]


def _fraction(data: Any) -> Any:  # noqa: ANN401
    """Makes small fractions only: reducing a fraction of huge numbers takes long."""
    above, below = (_expect(part, int) for part in data)
    if max(above.bit_length(), below.bit_length()) > _FRACTION_BITS:
        raise Refused(f"a fraction has numbers of more than {_FRACTION_BITS} bits")
    return fractions.Fraction(above, below)


def _constant_row(kind: type) -> tuple[type, Any, Any]:
    return kind, str, lambda data: constant(kind, data)


_ROWS: list[tuple[type, Any, Any]] = [
    (collections.OrderedDict, _of_dict, _from_dict(collections.OrderedDict)),
    (collections.Counter, _of_dict, _from_dict(collections.Counter)),
    (collections.defaultdict, lambda v: (_factory_name(v.default_factory), dict(v)), _default_dict),
    (collections.deque, lambda v: (list(v), v.maxlen),
     lambda d: collections.deque(_expect(d[0], list), d[1])),
    (range, lambda v: (v.start, v.stop, v.step), lambda d: range(*d)),
    (slice, lambda v: (v.start, v.stop, v.step), lambda d: slice(*d)),
    (type(...), lambda _: None, lambda _: ...),
    (decimal.Decimal, str, lambda d: decimal.Decimal(_expect(d, str))),
    (fractions.Fraction, lambda v: (v.numerator, v.denominator), _fraction),
    (datetime.timedelta, lambda v: (v.days, v.seconds, v.microseconds),
     lambda d: datetime.timedelta(*d)),
    (datetime.timezone, _offset, _zone),
    (datetime.date, lambda v: (v.year, v.month, v.day), lambda d: datetime.date(*d)),
    (datetime.time, lambda v: (v.hour, v.minute, v.second, v.microsecond, v.fold,
                               _offset(v.tzinfo)), _time),
    (datetime.datetime, lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second,
                                   v.microsecond, v.fold, _offset(v.tzinfo)), _datetime),
    (uuid.UUID, lambda v: v.bytes, lambda d: uuid.UUID(bytes=_expect(d, bytes))),
    (pathlib.PurePosixPath, str, lambda d: pathlib.PurePosixPath(_expect(d, str))),
    (pathlib.PosixPath, str, lambda d: pathlib.PosixPath(_expect(d, str))),
    (torch.Size, list, lambda d: torch.Size(_expect(d, list))),
    (torch.device, lambda v: (v.type, v.index), lambda d: torch.device(d[0], d[1])
     if d[1] is not None else torch.device(_expect(d[0], str))),
    (torch.UntypedStorage, lambda v: torch.empty(0, dtype=torch.uint8, device=v.device).set_(v),
     lambda d: _expect(d, torch.Tensor).untyped_storage()),
    *map(_constant_row, _CONSTANTS),
]  # fmt: skip

BY_CLASS = {row[0]: Registered(row[0], row[0].__name__, row[1], row[2]) for row in _ROWS}
BY_NAME = {row.name: row for row in BY_CLASS.values()}
