"""The algorithms behind collective operations: what there is, what each costs, which is taken.

`catalogue()` lists them, `costs()` says what each costs for a given operation, `chosen()` which of
them backend `ctran` takes there, by its cost model and this machine's tuning file.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from torchcomms import _comms

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
    """Every algorithm, or those of one operation ("all_reduce", "all_gather", ...).

    Each is a dict with `operation`, `name`, `summary`, `source` (the paper), `addition` ("none",
    "rank order" or "fixed": whether sums have the bits of adding rank after rank, or of an order of
    the algorithm's own) and `order`, that order in words.

    Raises InvalidArgument for an operation that there is not.
    """
    rows = _comms._algorithms()
    if operation is None:
        return rows
    found = [row for row in rows if row["operation"] == operation]
    if not found:
        names = ", ".join(dict.fromkeys(row["operation"] for row in rows))
        raise _comms.InvalidArgument(f"there is no operation {operation!r}; there are {names}")
    return found


def kernels() -> list[Row]:
    """Which collectives backend `ncclx` runs by kernels of its own where nobody says otherwise.

    Each is a dict with `operation`, `ranks_most` and `bytes_most` (of the largest buffer of one),
    None for any size; the first row of an operation that fits counts. Above it, and where ranks
    cannot map each other's memory, NCCL runs it. Empty where this build has no `ncclx`.
    """
    try:
        module = importlib.import_module("torchcomms._comms_ncclx")
    except ModuleNotFoundError:
        return []
    any_size = 2**64 - 1
    return [
        {"operation": name, "ranks_most": ranks, "bytes_most": None if most == any_size else most}
        for name, ranks, most in module.kernel_table()
    ]


def measured_kernels(tuning: str | None = None) -> list[Row]:
    """What was measured of kernels on GPUs, and goes before `kernels()` there: the rows of this
    machine's tuning file, or of a tuning's text.

    Each is a dict with `operation`, the model of `gpu` ("nvidia-h200"), and the inclusive ranges
    `ranks` and `bytes`, of the largest buffer of a rank; the `kind` of elements, "any", "float" or
    "integer"; `mode`, "any", "eager" or "graph"; the `algorithm`, "kernels" for what these think
    best, "nccl" for the library, or "region" where peers write registered tensors themselves; the
    thread `blocks` that it has at most, 0 for as many as the kernels think best; `tensors`, "any",
    "plain" or "registered"; and `within`, of operations that may have so many blocks at most, 0 of
    all. The first row that fits counts.
    """
    return _comms._kernel_rows(_tuning_text(tuning))


def gpu_word(device: torch.device) -> str:
    """The model of a GPU as tuning files have it; of the CPU, whose kernels stand in for a GPU's in
    tests, "host-memory"."""
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
    """What each algorithm of `operation` costs, for `bytes` in the largest buffer of a rank.

    Each is a dict with `name` and `why_not` ("" where it can do it), and then the numbers of its
    dearest rank: `steps`, `messages`, `sent_bytes`, `received_bytes`, `reduced_bytes`,
    `scratch_bytes`, the chunk they hold for, `chunk_bytes`, and the model's time, `estimate_us`.

    `local_size`: ranks a host (all of them for wire "shm", else 1). `cores`: of a host (this
    machine's). `chunk_bytes`: -1 takes the best one. `tuning`: a tuning's text, instead of this
    machine's file.
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
    """What backend `ctran` takes: `algorithm`, `chunk_bytes`, `why`, `estimate_us`.

    Arguments as of `costs()`.
    """
    return _comms._select_algorithm(
        operation, ranks, bytes, element_bytes, *_machine(ranks, local_size, wire, cores, tuning)
    )


def tuning_path() -> str:
    """Where this machine's tuning file lies, or would lie; "" without a home folder."""
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
    """`given`, or this machine's tuning, "" without one.

    Raises InvalidArgument, with the file's path and the line, for a file that is damaged.
    """
    if given is not None:
        return given
    own = _comms._tuning_text()
    return _comms._check_tuning(own, tuning_path()) if own else ""
