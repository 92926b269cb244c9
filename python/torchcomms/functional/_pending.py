"""Finds the works of asynchronous operations by the tensors that the operations write to.

A graph contains tensors but no works. An operator stores its work here, and the operator that waits
takes it. A work without a wait is dropped when it is done, or when its tensor is freed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.multiprocessing import reductions

_StorageWeakRef: Any = reductions.StorageWeakRef

_lock = threading.Lock()
_works: dict[int, list[tuple[Any, Any]]] = {}


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _drop_finished() -> None:
    for key, entries in list(_works.items()):
        left = [
            (memory, work)
            for memory, work in entries
            if not memory.expired() and not work.is_completed()
        ]
        if left:
            _works[key] = left
        else:
            del _works[key]


def remember(tensors: Sequence[Tensor], work: Any) -> None:  # noqa: ANN401
    """Stores `work`, which writes to these tensors, for a later wait."""
    with _lock:
        _drop_finished()
        for tensor in tensors:
            memory = tensor.untyped_storage()
            _works.setdefault(_key(tensor), []).append((_StorageWeakRef(memory), work))


def take(tensors: Sequence[Tensor]) -> list[Any]:
    """Removes and returns the works of these tensors, each once, oldest first."""
    found: list[Any] = []
    with _lock:
        for tensor in tensors:
            for memory, work in _works.pop(_key(tensor), ()):
                if not memory.expired() and all(work is not known for known in found):
                    found.append(work)
    return found


def wait(tensors: Sequence[Tensor]) -> None:
    """Waits for all works that write to these tensors. Raises the errors of the works."""
    for work in take(tensors):
        work.wait()
