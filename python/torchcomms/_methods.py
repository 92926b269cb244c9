"""Adds methods that are written in Python to native classes."""

from collections.abc import Callable
from typing import Any


def install(owner: type, method: Callable[..., Any]) -> None:
    """Makes the function a method of `owner`, under its own name."""
    method.__qualname__ = f"{owner.__name__}.{method.__name__}"
    setattr(owner, method.__name__, method)
