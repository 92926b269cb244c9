"""What torch.load(weights_only=True) reads and this format does not: as a file of torch.save.

Tensors that are not dense, storages, tensor subclasses, and what was given to
torch.serialization.add_safe_globals. How safe reading it is, torch decides.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

import torch

from torchcomms.objcol._format import Refused


def dump(value: object, why: Refused) -> bytes:
    """The file of a value that was refused for `why`. Raises that where torch refuses it, too."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        torch.load(io.BytesIO(file.getvalue()), map_location=_stay, weights_only=True)
    except Exception as error:
        raise why from error
    return file.getvalue()


def load(raw: memoryview, device: torch.device) -> Any:  # noqa: ANN401
    """The value. Raises Refused for what this process's torch does not take for data."""
    _check_size(raw)

    def place(storage: Any, location: str) -> Any:  # noqa: ANN401
        kind = location.partition(":")[0]
        if kind in ("cpu", "meta"):
            return storage
        target = str(device) if kind == device.type else "cpu"
        return torch.serialization.default_restore_location(storage, target)  # type: ignore[no-untyped-call]

    try:
        return torch.load(io.BytesIO(raw), map_location=place, weights_only=True)
    except Exception as error:
        unknown = re.search(r"GLOBAL ([\w.]+)", str(error))
        why = str(error).partition("\n")[0]
        if unknown:
            why = f"{unknown[1]} is not among torch's safe globals here"
        raise Refused(f"torch.load(weights_only=True): {why}") from error


def _stay(storage: Any, _location: str) -> Any:  # noqa: ANN401
    return storage


def _check_size(raw: memoryview) -> None:
    """torch.save compresses nothing: what is in the file takes no more room than the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as file:
            rows = file.infolist()
    except Exception as error:
        raise Refused(f"what torch.save should have written is no file of its: {error}") from error
    if any(r.compress_type != zipfile.ZIP_STORED for r in rows) or (
        sum(r.file_size for r in rows) > len(raw)
    ):
        raise Refused("a file of torch.save is compressed")
