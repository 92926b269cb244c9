"""Writes result files. Folders are made, and errors are raised, before the long work starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcomms import _comms

STDOUT = Path("-")


def prepare(*paths: Path | None) -> None:
    """Makes the folders of files that will be written. None and "-" are skipped.

    Raises: InvalidArgument, with path and reason, if a file could not be written after the work.
    """
    for path in paths:
        if path is not None and path != STDOUT:
            _prepare(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Prepares `path` for the block that writes it, and converts an OSError to a CommError."""
    prepare(path)
    try:
        yield
    except OSError as error:
        raise _comms.CommError(f"{path} cannot be written: {error.strerror}") from error


def write(path: Path, content: str | bytes) -> None:
    """Replaces the content of the file. Raises the errors of `prepare` and `writing`."""
    with writing(path):
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def _prepare(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        _refuse(path, f"{path.parent} is not a folder")
    except NotADirectoryError:
        _refuse(path, "one of its parents is not a folder")
    except OSError as error:
        _refuse(path, f"folder {path.parent} cannot be made: {error.strerror}")
    if path.is_dir():
        _refuse(path, "the path is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        _refuse(path, "this user has no write permission")


def _refuse(path: Path, why: str) -> None:
    raise _comms.InvalidArgument(f"{path} cannot be written: {why}")
