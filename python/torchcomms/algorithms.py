"""The algorithms of collective operations: their list, their costs, and the choice among them.

`catalogue()` lists the algorithms. `costs()` returns what each costs for an operation. `chosen()`
returns the one that backend `ctran` takes, by its cost model and this machine's tuning file.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from torchcomms import _backends, _comms

__all__ = [
    "catalogue",
    "chosen",
    "costs",
    "gpu_word",
    "kernels",
    "measured_kernels",
    "tuning_path",
]

Row = dict[str, Any]


def catalogue(operation: str | None = None) -> list[Row]:
    """Lists every algorithm, or those of one operation ("all_reduce", "all_gather", ...).

    Each is a dict with these keys:

    - `operation`, `name`, `summary`, and `source`, the paper.
    - `addition`: "none", "rank order" (sums have the bits of adding rank after rank) or "fixed"
      (the algorithm has an order of its own).
    - `order`: that order in words.

    Raises:
        InvalidArgument: an unknown operation.
    """
    rows = _comms._algorithms()
    if operation is None:
        return rows
    found = [row for row in rows if row["operation"] == operation]
    if not found:
        names = ", ".join(dict.fromkeys(row["operation"] for row in rows))
        raise _comms.InvalidArgument(f"unknown operation {operation!r}; known ones are {names}")
    return found


def kernels() -> list[Row]:
    """Lists the collectives that backend `ncclx` runs by its own kernels by default.

    Each is a dict with `operation`, `ranks_most` and `bytes_most`. `bytes_most` is the size of the
    largest buffer of a rank, None for any size. The first row of an operation that fits counts.
    NCCL runs larger operations, and all operations of ranks that cannot map each other's memory.

    Returns:
        An empty list if this build has no `ncclx`.

    Raises:
        BackendUnavailable: the module of `ncclx` does not load.
    """
    if not _backends.is_backend_built("ncclx"):
        return []
    module = _backends.backend_module("ncclx")
    any_size = 2**64 - 1
    return [
        {"operation": name, "ranks_most": ranks, "bytes_most": None if most == any_size else most}
        for name, ranks, most in module.kernel_table()
    ]


def measured_kernels(tuning: str | None = None) -> list[Row]:
    """Lists measured choices between kernels and NCCL on GPUs, which override `kernels()`.

    They are rows of this machine's tuning file, or of the text `tuning`. The first row that fits an
    operation counts. Each row is a dict:

    - `operation`, and `gpu`, the model ("nvidia-h200").
    - `ranks` and `bytes`: inclusive ranges; `bytes` of the largest buffer of a rank.
    - `kind`: the kind of elements, "any", "float" or "integer".
    - `mode`: "any", "eager" or "graph".
    - `algorithm`: "kernels" (the kernels choose), "nccl" (the library), or "region" (peers write
      registered tensors directly).
    - `blocks`: the largest number of thread blocks; 0: the kernels choose.
    - `tensors`: "any", "plain" or "registered".
    - `within`: the row is for operations that are limited to this many blocks or fewer; 0: for all.
    """
    return _comms._kernel_rows(_tuning_text(tuning))


def gpu_word(device: torch.device) -> str:
    """The model of a GPU as tuning files name it, such as "nvidia-h200".

    For the CPU, whose kernels replace a GPU's in tests, it is "host-memory".
    """
    if device.type == "cpu":
        return "host-memory"
    return _comms._tuning_word(torch.cuda.get_device_name(device))


def costs(
    operation: str,
    ranks: int,
    bytes: int,
    *,
    element_bytes: int = 4,
    local_size: int | None = None,
    wire: str = "shm",
    cores: int | None = None,
    chunk_bytes: int = -1,
    tuning: str | None = None,
) -> list[Row]:
    """Estimates the cost of each algorithm of `operation`, with the cost model of `ctran`.

    Args:
        operation: such as "all_reduce".
        ranks: number of ranks.
        bytes: size of the largest buffer of a rank.
        element_bytes: size of an element.
        local_size: ranks per host; None: all of them for wire "shm", 1 for "tcp".
        wire: "shm" or "tcp".
        cores: cores per host; None: those of this machine.
        chunk_bytes: size of a chunk; -1: the best one.
        tuning: the text of a tuning; None: this machine's file.
    Returns:
        A dict for each algorithm, with `name` and `why_not`, which is "" if the algorithm can run
        the operation. Then it also has the numbers of the rank with the highest cost: `steps`,
        `messages`, `sent_bytes`, `received_bytes`, `reduced_bytes`, `scratch_bytes`, the
        `chunk_bytes` that they hold for, and the time in the model, `estimate_us`.
    """
    return _comms._algorithm_costs(
        operation, ranks, bytes, element_bytes, *_machine(ranks, local_size, wire, cores, tuning),
        chunk_bytes,
    )  # fmt: skip


def chosen(
    operation: str,
    ranks: int,
    bytes: int,
    *,
    element_bytes: int = 4,
    local_size: int | None = None,
    wire: str = "shm",
    cores: int | None = None,
    tuning: str | None = None,
) -> Row:
    """The algorithm that backend `ctran` takes; the arguments are those of `costs()`.

    Returns:
        A dict with `algorithm`, `chunk_bytes`, `why` and `estimate_us`.
    """
    return _comms._select_algorithm(
        operation, ranks, bytes, element_bytes, *_machine(ranks, local_size, wire, cores, tuning)
    )


def tuning_path() -> str:
    """The path of this machine's tuning file, which may not exist; "" without a home folder."""
    return _comms._tuning_path()


def _machine(
    ranks: int, local_size: int | None, wire: str, cores: int | None, tuning: str | None
) -> tuple[int, str, int, str]:
    if local_size is None:
        local_size = 1 if wire == "tcp" else ranks
    if cores is None:
        cores = len(os.sched_getaffinity(0))
    return local_size, wire, cores, _tuning_text(tuning)


def _tuning_text(given: str | None) -> str:
    """`given`, or the text of this machine's tuning file; "" without a file.

    Raises: InvalidArgument, with the file's path and the line, for a damaged file.
    """
    if given is not None:
        return given
    own = _comms._tuning_text()
    return _comms._check_tuning(own, tuning_path()) if own else ""
