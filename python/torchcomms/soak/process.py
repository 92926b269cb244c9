"""The process of one rank: runs the steps that the parent grants, and reports the result."""

from __future__ import annotations

import hashlib
import os
import traceback
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.distributed import PrefixStore, Store, TCPStore

import torchcomms
from torchcomms import _forked
from torchcomms.soak.board import Board
from torchcomms.soak.communicators import Communicators, How
from torchcomms.soak.device import device_of
from torchcomms.soak.plan import Terms, step
from torchcomms.soak.rank import Rank, StepError
from torchcomms.soak.request import Request
from torchcomms.soak.show import operation_text
from torchcomms.soak.traits import traits_of

# Variables by which a rank would take part in the caller's job.
_FOREIGN = (
    "TORCHCOMM_RANK", "TORCHCOMM_SIZE", "TORCHCOMM_BOOTSTRAP_", "OMPI_", "PMI_", "PMIX_", "PALS_",
    "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "ROLE_RANK",
)  # fmt: skip


RECORDS = "records"  # the folder of the ranks' event rings, in the soak's folder


@dataclass(frozen=True)
class Role:
    """Everything that a process needs to be one rank of a soak."""

    request: Request
    rank: int
    name: str  # the name of the soak
    store_port: int
    folder: str
    environment: dict[str, str]  # the environment of the caller

    @property
    def log(self) -> Path:
        return Path(self.folder, f"{self.rank}.log")

    @property
    def board(self) -> Path:
        return Path(self.folder, "board")


# The messages of a rank to its parent: ("ready",), ("refused", text), ("failed", kind, step, text,
# operation, wrong, progress) or ("done", tally, plan).
def run(connection: Connection, role: Role) -> None:
    """Runs one rank from start to end."""
    settle(role)
    torch.set_num_threads(1)
    request = role.request
    board = Board(role.board, request.ranks)

    def at(number: int, operation: int, phase: str) -> None:
        board.write(role.rank, number, operation, phase)

    at(request.from_step, 0, "start")
    try:
        device = device_of(request.device, role.rank)
        store = TCPStore("127.0.0.1", role.store_port, is_master=False)

        def keys(name: str) -> Store:
            return PrefixStore(f"{role.name}/{name}", store)

        how = How(request.backend, device.torch, request.hints, request.limit_s, keys)
        communicators = Communicators(request.seed, request.ranks, role.rank, how)
        members = communicators.follow(request.from_step)
        traits = traits_of(members[0].comm, device.streams)
    except (torchcomms.BackendUnavailable, torchcomms.Unsupported, torchcomms.InvalidArgument) as e:
        connection.send(("refused", f"{type(e).__name__}: {e}"))
        return
    except Exception as error:
        traceback.print_exc()
        text = f"making the first communicators raised {type(error).__name__}: {error}"
        connection.send(("failed", "error", request.from_step, text, None, None, (0, 0)))
        return
    terms = Terms(request.seed, request.ranks, request.most_bytes, traits)
    rank = Rank(terms, role.rank, device, communicators, at)
    connection.send(("ready",))
    _steps(connection, role, terms, rank)
    communicators.close()


def _steps(connection: Connection, role: Role, terms: Terms, rank: Rank) -> None:
    """Runs steps until the last one that the parent grants."""
    board = Board(role.board, terms.ranks)
    number, until, last = role.request.from_step, role.request.from_step, False
    plan = hashlib.sha256()
    while True:
        while number == until and not last:
            board.write(role.rank, number, 0, "idle")
            until, last = connection.recv()
        while not last and connection.poll():
            until, last = connection.recv()
        if number == until:
            break
        try:
            due = step(terms, number)
            plan.update(repr(due).encode())
            rank.run(due)
        except StepError as error:
            traceback.print_exc()
            kind = "error" if error.wrong is None else "wrong value"
            wrong = None if error.wrong is None else asdict(error.wrong)
            connection.send(
                ("failed", kind, number, str(error), _fields(error, rank), wrong, rank.progress)
            )
            connection.recv()  # waits until the parent has all reports, or kills this process
            return
        number += 1
    board.write(role.rank, number, 0, "idle")
    connection.send(("done", rank.tally, plan.hexdigest()))


def _fields(error: StepError, rank: Rank) -> dict[str, object] | None:
    if (op := error.op) is None:
        return None
    return {**asdict(op), "text": operation_text(op), "comm": rank.names.get(op.slot, "")}


def settle(role: Role) -> None:
    """Makes this process a rank, with the environment of the caller."""
    _forked.settle(role.log)
    os.environ.clear()
    os.environ.update({k: v for k, v in role.environment.items() if not k.startswith(_FOREIGN)})
    os.environ.update(
        TORCHCOMM_RANK=str(role.rank),
        TORCHCOMM_SIZE=str(role.request.ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(role.store_port),
        TORCHCOMM_RECORDER_DIR=str(Path(role.folder, RECORDS)),
    )
    # By default, work of more than 8 streams may be serialized.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
