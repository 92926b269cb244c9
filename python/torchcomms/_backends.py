"""Which backends are installed, and loading them: the entry-point group ``torchcomms.backends``."""

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
    """The first entry point of each name. Reading metadata takes milliseconds: once a process."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, entry)
    return found


def built_backends() -> list[str]:
    """Names of the installed backends, sorted. Being installed does not mean it works here."""
    return sorted(_entry_points())


def is_backend_built(backend: str) -> bool:
    """True if a backend of that name is installed."""
    return backend in _entry_points()


def _load_all() -> None:
    """Imports what can be imported of the installed backends."""
    for backend in built_backends():
        with contextlib.suppress(Exception):  # a third party's module may raise anything
            _load_backend(backend)


def _load_backend(backend: str) -> None:
    """Imports the module of an installed backend, which registers it.

    Raises:
        BackendUnavailable (a ModuleNotFoundError): no such backend, or its module does not load.
    """
    backend_module(backend)


def backend_module(backend: str) -> "ModuleType":
    """The same; returns the module.

    Raises:
        BackendUnavailable (a ModuleNotFoundError): no such backend, or its module does not load.
    """
    entry = _entry_points().get(backend)
    if entry is None:
        import difflib  # not at every start

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
