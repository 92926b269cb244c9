"""Environment variables: for a while, and as the import of the package reads them."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_TRUE, _FALSE = ("1", "true", "yes", "y"), ("0", "false", "no", "n")


def flag(name: str) -> bool:
    """A boolean variable, before there is a native core. A text that is none is a warning, and
    False: the import goes on."""
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
    """Set inside the block, for this process and those it starts; as before after it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
