"""The inside of a process: settles as one rank, runs steps as far as it may, says how it went."""

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

# Variables that would tell a rank that it belongs to the caller's job.
_FOREIGN = (
    "TORCHCOMM_RANK", "TORCHCOMM_SIZE", "TORCHCOMM_BOOTSTRAP_", "OMPI_", "PMI_", "PMIX_", "PALS_",
    "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "ROLE_RANK",
)  # fmt: skip


RECORDS = "records"  # the folder of the ranks' event rings, in that of the soak


@dataclass(frozen=True)
class Role:
    """What a process must know to be one rank of a soak."""

    request: Request
    rank: int
    name: str  # of the soak
    store_port: int
    folder: str
    environment: dict[str, str]  # of who asked

    @property
    def log(self) -> Path:
        return Path(self.folder, f"{self.rank}.log")

    @property
    def board(self) -> Path:
        return Path(self.folder, "board")


# What a rank says, each with its content:
# ("ready",), ("refused", text), ("failed", kind, step, text, operation, wrong, progress) or
# ("done", tally, plan).
def run(connection: Connection, role: Role) -> None:
    """The whole life of a rank."""
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
    """Until the last step that the parent grants."""
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
            connection.recv()  # until the parent has heard of all, or ends this process
            return
        number += 1
    board.write(role.rank, number, 0, "idle")
    connection.send(("done", rank.tally, plan.hexdigest()))


def _fields(error: StepError, rank: Rank) -> dict[str, object] | None:
    if (op := error.op) is None:
        return None
    return {**asdict(op), "text": operation_text(op), "comm": rank.names.get(op.slot, "")}


def settle(role: Role) -> None:
    """Makes this process a rank, with the environment of who asked."""
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
    # By default work of more than 8 streams may wait for work of another one.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
