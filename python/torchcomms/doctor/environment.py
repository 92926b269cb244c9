"""Checks the variables that torchcomms reads: the launcher's rank and size, and all values."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import NamedTuple

from torchcomms import _comms, algorithms
from torchcomms.doctor import vendors
from torchcomms.doctor.report import Section


class Launcher(NamedTuple):
    """The variables in which a launcher gives rank and size, and the methods that read them."""

    name: str
    methods: list[str]  # empty: all methods
    rank: str
    sizes: list[str]  # the first one that is set is used


_SELECTOR = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"
_SHOWN = re.compile(
    r"TORCHCOMM|MASTER_|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|TORCHELASTIC_|TORCH_DISTRIBUTED_"
    r"|OMPI_COMM_WORLD_|PMI_|PMIX_RANK|PALS_|SLURM_(PROCID|NTASKS|LOCALID|NODEID|JOB_ID|NODELIST)"
    r"|GLOO_|NCCL_|CUDA_VISIBLE_DEVICES"
)
_LIBRARY = "TORCHCOMMS_BACKEND_LIB_PATH_"


def look() -> Section:
    section = Section("environment", "Environment")
    for name, value in sorted(os.environ.items()):
        if _SHOWN.match(name):
            section.rows.append({"variable": name, "value": value})
    _identity(section)
    _values(section)
    _tuning(section)
    return section


def _identity(section: Section) -> None:
    """Reports which launcher gives rank and size, and warns if launchers contradict each other."""
    method = os.environ.get(_SELECTOR, "auto").lower()
    # In the order in which new_comm() tries them.
    launchers = [Launcher(**row) for row in _comms._launchers()]
    looked_at = [row for row in launchers if not row.methods or method in row.methods]
    found = [answer for row in looked_at if (answer := _ask(section, row)) is not None]
    if not found:
        section.ok(
            "launcher",
            "none: torchrun, mpirun or srun give rank and size; "
            "a single process sets TORCHCOMM_RANK=0 and TORCHCOMM_SIZE=1",
        )
        return
    name, rank, size = found[0]
    section.ok("launcher", f"{name}: rank {rank} of {size}")
    for other, other_rank, other_size in found[1:]:
        if (other_rank, other_size) != (rank, size):
            section.warn(
                "launcher",
                f"{other} says rank {other_rank} of {other_size}, but {name} has priority",
                f"start with one launcher only, or unset the variables of {name}",
            )


def _ask(section: Section, row: Launcher) -> tuple[str, int, int] | None:
    """Returns (launcher, rank, size) if its variables are valid; notes what is wrong with them."""
    size_name = next((name for name in row.sizes if name in os.environ), row.sizes[0])
    rank, size = os.environ.get(row.rank), os.environ.get(size_name)
    if rank is None:
        # These are set without ranks too, as in a batch script.
        if size is not None and row.name not in ("Slurm", "PALS"):
            section.problem(
                row.name, f"{size_name} is set, but {row.rank} is not", "set both or neither"
            )
        return None
    if size is None:
        section.problem(
            row.name, f"{row.rank} is set, but {size_name} is not", "set both or neither"
        )
        return None
    if not (rank.isdigit() and size.isdigit() and int(rank) < int(size)):
        section.problem(
            row.name,
            f"{row.rank}={rank} and {size_name}={size} are not a rank and a size",
            f"{size_name} must be 1 or more, and {row.rank} in [0, {size_name})",
        )
        return None
    return row.name, int(rank), int(size)


def _values(section: Section) -> None:
    registry = [
        row["name"].replace("<BACKEND>", backend.upper())
        for row in _comms._environment()
        for backend in vendors.VENDOR_OF.values()
    ]
    for name, text in sorted(os.environ.items()):
        if name.startswith(_LIBRARY):
            if not Path(text).is_file():
                section.problem(
                    name,
                    f"the file {text} does not exist",
                    f"set {name} to the backend's shared library",
                )
        elif name in registry:
            try:
                _comms._check_variable(name)
            except _comms.InvalidArgument as error:
                allowed = str(error).rpartition("expected ")[2]
                section.problem(name, f"{text!r} cannot be read", f"allowed: {allowed}")
        elif name.startswith("TORCHCOMM") and name not in registry:
            near = difflib.get_close_matches(name, registry, n=1, cutoff=0.8)
            section.warn(
                name,
                "torchcomms reads no variable of this name",
                f"did you mean {near[0]}?" if near else "unset it",
            )


def _tuning(section: Section) -> None:
    """Notes a tuning file that cannot be parsed: it would fail every start of `ctran`."""
    try:
        algorithms.measured_kernels()  # parses the whole file
    except _comms.CommError as error:
        section.problem(
            "tuning file",
            str(error),
            f"correct {algorithms.tuning_path()}, or write it again with `torchcomms tune`",
        )
