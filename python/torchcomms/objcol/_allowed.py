"""Decides which classes a message may name, and makes instances without running their code.

A name in a message is looked up among the registered types and in modules that this process has
imported already. The lookup imports nothing and calls no attribute hook.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torchcomms.objcol._format import Refused, expect, expect_names


class Conversion(NamedTuple):
    """How instances of a class are converted to simpler data, and such data to instances."""

    name: str  # of the class in messages
    to_data: Callable[[Any], Any]
    from_data: Callable[[Any], Any]
    own_hash: bool = False  # whether a key of this class would run the class's __hash__ or __eq__


by_class: dict[type, Conversion] = {}
by_name: dict[str, Conversion] = {}


def full_name(cls: type) -> str:
    """The name of a class in a message: "module:Outer.Inner"."""
    return f"{cls.__module__}:{cls.__qualname__}"


def register(cls: type, row: Conversion) -> None:
    """Registers a conversion. It replaces older ones of the class and of the name."""
    if older := by_class.get(cls):
        by_name.pop(older.name, None)
    for other in [c for c, r in by_class.items() if r.name == row.name]:
        del by_class[other]
    by_class[cls] = by_name[row.name] = row


def of_class(cls: type) -> Conversion:
    """Returns the conversion of a class that is not registered. Raises Refused."""
    row = of_data_class(cls)
    if row.name in by_name or _find(row.name) is not cls:
        raise Refused(f"{row.name}: another class has this name")
    return row


def of_name(name: str) -> Conversion:
    """Returns the conversion of the class called `name`. Raises Refused."""
    return by_name.get(name) or of_data_class(_find(name))


def _find(name: str) -> type:
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if not isinstance(module, types.ModuleType):
        raise Refused(
            f"{name}: this process has not imported {module_name!r}, and has no type registered"
            " under this name"
        )
    # Reads the plain dictionaries: a hook of a module or a metaclass would be code that a peer
    # calls.
    scope = object.__getattribute__(module, "__dict__")
    found: Any = None
    for part in path.split("."):
        found = scope.get(part)
        if not isinstance(found, type):
            raise Refused(f"{name}: this process has no class of this name")
        scope = type.__getattribute__(found, "__dict__")
    if full_name(found) != name:
        raise Refused(f"{name}: in this process the name belongs to {full_name(found)}")
    cls: type = found
    return cls


def of_data_class(cls: type, registered_name: str | None = None) -> Conversion:
    """Returns the conversion of a dataclass, namedtuple or enum.

    Code of a registered class is trusted: it may have __del__, and __hash__ that keys run. Raises
    Refused for a class that is not plain data.
    """
    name, trusted = registered_name or full_name(cls), registered_name is not None
    if issubclass(cls, enum.Enum):  # members are objects of this process
        return Conversion(name, _names, partial(_member, cls))
    if not trusted and any("__del__" in vars(c) for c in cls.__mro__):
        raise Refused(f"{full_name(cls)} has __del__, which would run on received data")
    if issubclass(cls, tuple):
        fields = inspect.getattr_static(cls, "_fields", None)
        if isinstance(fields, tuple) and all(isinstance(field, str) for field in fields):
            own: tuple[object, object] = (cls.__hash__, cls.__eq__)
            own_hash = not trusted and own != (tuple.__hash__, tuple.__eq__)
            return Conversion(name, _elements, partial(_named_tuple, cls), own_hash)
    elif "__dataclass_fields__" in vars(cls):
        _check_fields(cls)
        return Conversion(name, _field_values, partial(_data_class, cls), not trusted)
    raise Refused(f"{full_name(cls)} is not a dataclass, namedtuple or enum")


def _check_fields(cls: type) -> None:
    for field in dataclasses.fields(cls):
        static = inspect.getattr_static(cls, field.name, None)
        slot = isinstance(static, types.MemberDescriptorType)
        if hasattr(type(static), "__set__") and not slot:
            raise Refused(f"{full_name(cls)}.{field.name} is a property: setting it runs code")


def _check_state(value: object) -> None:
    """Raises Refused for an instance with attributes beside its fields, which would not be sent."""
    cls = type(value)
    fields = getattr(cls, "__dataclass_fields__", ())
    for name in () if cls in by_class else getattr(value, "__dict__", ()):
        kept = isinstance(inspect.getattr_static(cls, name, None), functools.cached_property)
        # A cached_property is allowed: the reader computes its value again.
        if name not in fields and not kept:
            raise Refused(f"an instance of {full_name(cls)} has {name!r}, which is not a field")


def _blank(cls: type) -> Any:  # noqa: ANN401
    """Makes an instance without fields. Neither __new__ nor __init__ of the class runs."""
    try:
        return object.__new__(cls)
    except TypeError as error:
        raise Refused(
            f"{full_name(cls)} cannot be created without its own code: {error}"
        ) from error


def _field_values(value: Any) -> dict[str, Any]:  # noqa: ANN401
    cls = type(value)
    _blank(cls)  # The reader makes one, too.
    _check_state(value)
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _data_class(cls: type, values: Any) -> Any:  # noqa: ANN401
    """Makes an instance with these fields, which must include all arguments of __init__."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    needed = {name for name, field in fields.items() if field.init}
    if not needed <= expect_names(values).keys() <= fields.keys():
        raise Refused(
            f"{full_name(cls)} has fields {sorted(fields)} here, but received {sorted(values)}"
        )
    instance = _blank(cls)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def _elements(value: tuple[Any, ...]) -> list[Any]:
    _check_state(value)
    return list(tuple.__iter__(value))


def _named_tuple(cls: Any, values: Any) -> Any:  # noqa: ANN401
    if len(expect(values, list)) != len(cls._fields):
        raise Refused(f"received {len(values)} values for the namedtuple {full_name(cls)}")
    return tuple.__new__(cls, values)


def _names(value: enum.Enum) -> list[str]:
    """The member's name, or the names of the flags that it combines."""
    cls = type(value)
    members = type.__getattribute__(cls, "_member_map_")
    if value._name_ is not None and value._name_ in members:
        return [value._name_]
    parts = [name for name, part in members.items() if part in value]  # type: ignore[operator]
    if _member(cls, parts) != value:
        raise Refused(f"{value!r} is not a combination of members of {full_name(cls)}")
    return parts


def _member(cls: type, names: Any) -> Any:  # noqa: ANN401
    """Returns the enum member, or the flag combined of several."""
    members = type.__getattribute__(cls, "_member_map_")
    unknown = [name for name in expect(names, list) if expect(name, str) not in members]
    if unknown:
        raise Refused(f"{full_name(cls)} has no member {unknown[0]!r} here")
    if len(names) == 1:
        return members[names[0]]
    missing = inspect.getattr_static(cls, "_missing_", None)
    if not issubclass(cls, enum.Flag) or missing is not vars(enum.Flag)["_missing_"]:
        raise Refused(f"{full_name(cls)} has its own code that creates members")
    value = 0
    for name in names:
        value |= members[name]._value_
    return cls(value)
