"""Delays a function until torch, which imports this package, is fully imported itself."""

from __future__ import annotations

import sys
from collections.abc import Callable


class _AtNextImport:
    """A finder in sys.meta_path that finds no module, but retries `attempt` at each import."""

    def __init__(self, attempt: Callable[[], bool]) -> None:
        self._attempt: Callable[[], bool] | None = attempt

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        attempt = self._attempt
        if attempt is None or name.startswith("torchcomms"):
            return
        self._attempt = None  # the attempt may import modules itself
        if not attempt():
            self._attempt = attempt
        else:  # a new list, because the running import iterates over the old one
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


def as_soon_as_possible(attempt: Callable[[], bool]) -> None:
    """Calls `attempt` now, then before each import of another package until it returns True."""
    if not attempt():
        sys.meta_path.insert(0, _AtNextImport(attempt))
