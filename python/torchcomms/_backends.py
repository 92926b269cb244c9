"""Finds and loads the installed backends: the entry points of group ``torchcomms.backends``."""

import contextlib
import functools
import importlib
from typing import TYPE_CHECKING

from torchcomms import _comms

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from types import ModuleType

GROUP = "torchcomms.backends"


@functools.cache
def _entry_points() -> "dict[str, EntryPoint]":
    """The first entry point of each name. Cached: reading the metadata takes milliseconds."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, entry)
    return found


def built_backends() -> list[str]:
    """Names of the installed backends, sorted. An installed backend may still lack its hardware."""
    return sorted(_entry_points())


def is_backend_built(backend: str) -> bool:
    """True if a backend of that name is installed."""
    return backend in _entry_points()


def _load_all() -> None:
    """Imports every installed backend that can be imported, and ignores the others."""
    for backend in built_backends():
        with contextlib.suppress(Exception):  # a third-party module may raise any exception
            _load_backend(backend)


def _load_backend(backend: str) -> None:
    """Imports the module of an installed backend, which registers the backend.

    Raises:
        BackendUnavailable (a ModuleNotFoundError): no such backend, or its module does not load.
    """
    backend_module(backend)


def backend_module(backend: str) -> "ModuleType":
    """Imports the module of an installed backend and returns it.

    Raises:
        BackendUnavailable (a ModuleNotFoundError): no such backend, or its module does not load.
    """
    entry = _entry_points().get(backend)
    if entry is None:
        import difflib  # imported only for the error: it would slow down every start

        near = difflib.get_close_matches(backend.lower(), built_backends(), n=1)
        meant = f" (is '{near[0]}' meant?)" if near else ""
        raise _comms.BackendUnavailable(
            f"failed to find backend '{backend}'{meant}; installed are:"
            f" {', '.join(built_backends())}"
        )
    try:
        return importlib.import_module(entry.module)
    except ImportError as error:
        raise _comms.BackendUnavailable(
            f"failed to load backend '{backend}' from {entry.module}: {error}"
        ) from error


_comms._set_backend_discovery(_load_all)
