"""The process of a cell: prepares itself, runs its program, and reports the result."""

from __future__ import annotations

import gc
import os
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from torchcomms import _forked
from torchcomms.drill.around import ResourceCheck
from torchcomms.drill.cell import Skip
from torchcomms.drill.scene import Role, Scene

# Variables by which a rank would take part in the caller's job.
_FOREIGN = (
    "TORCHCOMM_", "OMPI_", "PMI_", "PMIX_", "PALS_", "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK",
    "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
    "TORCH_DISTRIBUTED_USE_TORCHCOMMS",
)  # fmt: skip


def settle(role: Role) -> None:
    """Makes this process a session leader that writes to a log, with the environment of a rank."""
    _forked.settle(log_path(role))
    for name in [n for n in os.environ if n.startswith(_FOREIGN)]:
        del os.environ[name]
    tmp = Path(role.folder, "tmp")
    tmp.mkdir(exist_ok=True)
    os.environ.update(role.libraries)
    os.environ.update(
        TMPDIR=str(tmp),
        TORCHCOMM_RECORDER_DIR=str(Path(role.folder, "records")),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(role.free_port),
        GLOO_SOCKET_IFNAME="lo",
        OMP_NUM_THREADS="1",
    )


def log_path(role: Role) -> Path:
    return Path(role.folder, f"{role.index}.log")


def run(connection: Connection, role: Role) -> None:
    """Runs one process from start to end. It sends ("done", Report) or ("skip", reason)."""
    settle(role)
    scene = Scene(role, connection)
    try:
        if role.is_rank and role.cell.enter is not None:
            role.cell.enter(scene)
        torch.set_num_threads(1)
        if not role.is_rank:
            role.cell.helpers[role.index - role.cell.ranks](scene)
        elif scene.rank in role.cell.victims:
            role.cell.program(scene)
        else:
            resource_check = ResourceCheck(scene)
            role.cell.program(scene)
            resource_check.check()
    except Skip as reason:
        connection.send(("skip", str(reason)))
        return
    except Exception as error:
        scene.find("fail", f"{type(error).__name__}: {error} at {_where(error)}")
        traceback.print_exc()
    connection.send(("done", scene.report))
    scene.open.clear()
    del scene
    gc.collect()


def _where(error: BaseException) -> str:
    """The line of the cell's program that raised, not the innermost frame."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"drill{os.sep}" in f.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
