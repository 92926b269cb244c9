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
from typing import Any, NamedTuple

from torchcomms.objcol._format import Refused


class Registered(NamedTuple):
    """A type that was passed to `register_type`."""

    cls: type
    name: str
    to_data: Callable[[Any], Any] | None
    from_data: Callable[[Any], Any] | None


by_class: dict[type, Registered] = {}
by_name: dict[str, Registered] = {}

DATACLASS, NAMEDTUPLE, ENUM = "dataclass", "namedtuple", "enum"


def full_name(cls: type) -> str:
    """The name of a class in a message: "module:Outer.Inner"."""
    return f"{cls.__module__}:{cls.__qualname__}"


def register(row: Registered) -> None:
    """Registers a type. It replaces older registrations of the class and of the name."""
    for older in (by_class.get(row.cls), by_name.get(row.name)):
        if older is not None:
            forget(older)
    by_class[row.cls] = by_name[row.name] = row


def forget(row: Registered) -> None:
    """Removes a registration."""
    by_class.pop(row.cls, None)
    by_name.pop(row.name, None)


def find(name: str) -> type:
    """Returns the class called `name`, which must be registered or imported. Raises Refused."""
    if row := by_name.get(name):
        return row.cls
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    if not isinstance(module, types.ModuleType):
        raise Refused(f"{name}: this process has not imported {module_name!r}")
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


def kind_of(cls: type) -> str:
    """Returns DATACLASS, NAMEDTUPLE or ENUM. Raises Refused for a class that is not plain data."""
    if issubclass(cls, enum.Enum):
        return ENUM
    if cls not in by_class and any("__del__" in vars(c) for c in cls.__mro__):
        raise Refused(f"{full_name(cls)} has __del__, which would run on received data")
    if issubclass(cls, tuple):
        fields = inspect.getattr_static(cls, "_fields", None)
        if isinstance(fields, tuple) and all(isinstance(field, str) for field in fields):
            return NAMEDTUPLE
    elif "__dataclass_fields__" in vars(cls):
        _check_fields(cls)
        return DATACLASS
    raise Refused(f"{full_name(cls)} is not a dataclass, namedtuple or enum")


def check_state(cls: type, value: object) -> None:
    """Raises Refused for an instance with attributes beside its fields, which would not be sent."""
    fields = getattr(cls, "__dataclass_fields__", ())
    for name in getattr(value, "__dict__", ()):
        kept = isinstance(inspect.getattr_static(cls, name, None), functools.cached_property)
        # A cached_property is allowed: the reader computes its value again.
        if name not in fields and not kept:
            raise Refused(f"an instance of {full_name(cls)} has {name!r}, which is not a field")


def _check_fields(cls: type) -> None:
    for field in dataclasses.fields(cls):
        static = inspect.getattr_static(cls, field.name, None)
        slot = isinstance(static, types.MemberDescriptorType)
        if hasattr(type(static), "__set__") and not slot:
            raise Refused(f"{full_name(cls)}.{field.name} is a property: setting it runs code")


def blank(cls: type) -> Any:  # noqa: ANN401
    """Makes an instance without fields. Neither __new__ nor __init__ of the class runs."""
    try:
        return object.__new__(cls)
    except TypeError as error:
        raise Refused(
            f"{full_name(cls)} cannot be created without its own code: {error}"
        ) from error


def hashes_itself(cls: type, kind: str) -> bool:
    """Returns: whether a key of this class would run the class's own __hash__ or __eq__."""
    if kind == ENUM or cls in by_class:
        return False  # enum members are objects of this process; a registered class is trusted
    own: tuple[object, object] = (cls.__hash__, cls.__eq__)
    return kind == DATACLASS or own != (tuple.__hash__, tuple.__eq__)


def fill(cls: type, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Makes a dataclass instance with these fields, which must include all arguments of __init__.

    Raises: Refused.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    needed = {name for name, field in fields.items() if field.init}
    if not needed <= values.keys() <= fields.keys():
        raise Refused(
            f"{full_name(cls)} has fields {sorted(fields)} here, but received {sorted(values)}"
        )
    instance = blank(cls)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def member(cls: type, names: list[str]) -> Any:  # noqa: ANN401
    """Returns the enum member, or the flag combined of several.

    Raises Refused for an unknown name.
    """
    members = type.__getattribute__(cls, "_member_map_")
    unknown = [name for name in names if name not in members]
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
