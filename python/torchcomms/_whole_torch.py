"""What has to wait until torch, which imports this package while it is made itself, is whole."""

from __future__ import annotations

import sys
from collections.abc import Callable


class _AtNextImport:
    """Is asked about every import, knows no module, and tries again what was not possible."""

    def __init__(self, attempt: Callable[[], bool]) -> None:
        self._attempt: Callable[[], bool] | None = attempt

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        attempt = self._attempt
        if attempt is None or name.startswith("torchcomms"):
            return
        self._attempt = None  # it may import modules itself
        if not attempt():
            self._attempt = attempt
        else:  # a new list: the import that asks goes through the old one
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]


def as_soon_as_possible(attempt: Callable[[], bool]) -> None:
    """Calls it now and, until it returns True, before each import of a module that is not ours."""
    if not attempt():
        sys.meta_path.insert(0, _AtNextImport(attempt))
