"""Objects that torch.load(weights_only=True) reads and this format does not, as torch.save files.

These are tensors that are not dense, storages, tensor subclasses, and classes that were passed to
torch.serialization.add_safe_globals. torch decides how safe reading them is. This module checks
before how much memory it takes.
"""

from __future__ import annotations

import io
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import torch

from torchcomms.objcol._format import Budget, Over, Refused
from torchcomms.objcol._pickle_check import check_pickle

_BEGINNING = b"PK\3\4"  # of a zip archive


def dump(value: object, why: Refused, budget: Budget) -> bytes:
    """Returns the torch.save file of a value that was refused for `why`.

    Raises: `why` if torch refuses it, too; Over if reading it exceeds `budget`. The file's bytes
    are not taken from the budget.
    """
    file = io.BytesIO()
    try:
        torch.save(value, file)
        _check(memoryview(file.getvalue()), budget)
        _load(file.getvalue(), _keep_storage)
    except Over:
        raise
    except Exception as error:
        raise why from error
    return file.getvalue()


def load(raw: memoryview, device: torch.device, budget: Budget) -> Any:  # noqa: ANN401
    """Returns the value in a file.

    Raises: Refused if torch does not accept it as data here; Over if it exceeds `budget`, from
    which the file's bytes have been taken.
    """
    _check(raw, budget)
    try:
        return _load(raw, _placing(device))
    except Exception as error:
        unknown = re.search(r"GLOBAL ([\w.]+)", str(error))
        why = str(error).partition("\n")[0]
        if unknown:
            why = f"{unknown[1]} is not among torch's safe globals here"
        raise Refused(f"torch.load(weights_only=True): {why}") from error


def save(value: object) -> bytes:
    """Returns the file of any value that can be pickled, for `load_unsafe`."""
    file = io.BytesIO()
    torch.save(value, file, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    return file.getvalue()


def is_file(raw: memoryview) -> bool:
    """Returns: whether torch.save, not pickle, wrote the bytes."""
    return bytes(raw[: len(_BEGINNING)]) == _BEGINNING


def load_unsafe(raw: memoryview, device: torch.device) -> Any:  # noqa: ANN401
    """Returns the value of `save`. It runs the code that the writer put into the file."""
    return _load(raw, _placing(device), weights_only=False)


def _placing(device: torch.device) -> Callable[[Any, str], Any]:
    """Maps storages of an accelerator to `device` if that is of the same type, else to the CPU."""

    def place(storage: Any, location: str) -> Any:  # noqa: ANN401
        kind = location.partition(":")[0]
        if kind in ("cpu", "meta"):
            return storage
        target = str(device) if kind == device.type else "cpu"
        return torch.serialization.default_restore_location(storage, target)  # type: ignore[no-untyped-call]

    return place


def _load(
    raw: bytes | memoryview, place: Callable[[Any, str], Any], *, weights_only: bool = True
) -> Any:  # noqa: ANN401
    with warnings.catch_warnings():
        # torch warns so for every file with a sparse tensor; a user cannot change it.
        warnings.filterwarnings("ignore", "Validating sparse tensor invariants")
        return torch.load(io.BytesIO(raw), map_location=place, weights_only=weights_only)


def _keep_storage(storage: Any, _location: str) -> Any:  # noqa: ANN401
    return storage


def _check(raw: memoryview, budget: Budget) -> None:
    """Checks that the file is not compressed, so that its content is no larger than the file.

    The memory of the pickle's objects is taken from `budget`.
    """
    # Without this beginning, torch.load assumes a file of an older torch.
    if not is_file(raw):
        raise Refused("the bytes are not a file of torch.save")
    archive = io.BytesIO(raw)
    try:
        with zipfile.ZipFile(archive) as file:
            rows = file.infolist()
        if any(r.compress_type != zipfile.ZIP_STORED for r in rows) or (
            sum(r.file_size for r in rows) > len(raw)
        ):
            raise Refused("a file of torch.save is compressed")
        archive.seek(0)
        # Reads the record as torch.load does.
        pkl = torch._C.PyTorchFileReader(archive).get_record("data.pkl")
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"the bytes are not a file of torch.save: {error}") from error
    check_pickle(pkl, budget)
