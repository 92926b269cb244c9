"""Reads boolean variables before the native core is loaded, and sets variables for a block."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_TRUE, _FALSE = ("1", "true", "yes", "y"), ("0", "false", "no", "n")


def flag(name: str) -> bool:
    """Reads a boolean environment variable without the native core.

    A value that is not a boolean causes a RuntimeWarning and counts as False, so that the import
    goes on.
    """
    text = os.environ.get(name, "").strip()
    if text and text.lower() not in _TRUE + _FALSE:
        warnings.warn(
            f"environment variable {name}={text!r} is not allowed: expected"
            f" {', '.join(_TRUE + _FALSE)}; it counts as unset",
            RuntimeWarning,
            stacklevel=2,
        )
    return text.lower() in _TRUE


@contextmanager
def variables(**values: str) -> Iterator[None]:
    """Sets environment variables inside the block, and restores the old values after it.

    Processes that are started inside the block inherit the values.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
