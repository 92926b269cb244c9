"""F20, F21 and F30: forks, started programs, and an earlier job of the same name."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import torchcomms
from torchcomms.drill.around import ProcessResources
from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene

_FORKED_PROCESS, _NO_ERROR, _OTHER = 33, 34, 35


def forked(scene: Scene) -> None:
    """A child calls an operation, drops everything, and exits. The parent must not be affected."""
    side = scene.comm()
    scene.works(side)
    pending = side.start("all_reduce", Shape(numel=1 << 16)) if scene.rank == 0 else None
    child = os.fork()
    if child == 0:
        status = _OTHER
        try:
            side.start("all_reduce")
            status = _NO_ERROR
        except torchcomms.ForkedProcess:
            status = _FORKED_PROCESS
        finally:
            scene.open.clear()
            del side, pending
            gc.collect()
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(ended)
    scene.check(status == _FORKED_PROCESS, f"the child exited with {status}: no ForkedProcess")
    if pending is None:
        pending = side.start("all_reduce", Shape(numel=1 << 16))
    scene.right(pending)
    for op in ("all_gather_single", "barrier", "all_reduce"):
        scene.works(side, op)


class _Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def loader(scene: Scene) -> None:
    """Workers of a DataLoader are forked while the communicator is in use."""
    side = scene.comm()
    scene.works(side)
    batches = torch.utils.data.DataLoader(
        _Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork"
    )
    for batch in batches:
        scene.check(int(batch.sum()) in (6, 22), "the loader's numbers are wrong")
        scene.works(side)
    del batches


def executed(scene: Scene) -> None:
    """A program that is started with inherited descriptors must get none of ours."""
    before = ProcessResources.now()
    side = scene.comm()
    scene.works(side)
    new = {
        n: to for n, to in ProcessResources.now().descriptors.items() if n not in before.descriptors
    }
    open_in_programs = [f"{n} ({to})" for n, to in new.items() if os.get_inheritable(n)]
    scene.check(not open_in_programs, f"inherited by programs: {', '.join(open_in_programs[:4])}")
    code = "import os; print(*os.listdir('/proc/self/fd'))"
    program = [sys.executable, "-I", "-S", "-c", code]
    listed = subprocess.run(program, close_fds=False, capture_output=True, text=True, check=True)
    theirs = set(map(int, listed.stdout.split())) & set(new)
    scene.check(len(theirs) <= 1, f"descriptors in a started program: {sorted(theirs)}")


def listening_ports() -> list[int]:
    """The TCP ports of 127.0.0.1 or of all addresses on which this process listens."""
    sockets = {to for to in ProcessResources.now().descriptors.values() if to.startswith("socket:")}
    ports = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return sorted(set(ports))


def port_after_death(scene: Scene) -> None:
    """Rank 0 dies while a program that it started keeps running: its ports must be free."""
    side = scene.comm(f"{scene.role.run}_ported", **_over_tcp(scene))
    scene.works(side)
    path = scene.tmp / "ports"
    if scene.rank == 0:
        program = subprocess.Popen(["sleep", "60"], close_fds=False)
        path.write_text(" ".join(map(str, [program.pid, *listening_ports()])))
        scene.meet("written")
        scene.die()
    scene.meet("written")
    scene.await_end(0)
    pid, *ports = map(int, path.read_text().split())
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                scene.find("fail", f"port {port} is in use after its process has died: {error}")
    scene.report.notes["ports"] = len(ports)
    os.kill(pid, signal.SIGKILL)


def _over_tcp(scene: Scene) -> dict[str, Any]:
    return {"hints": {"ctran::transport": "tcp"}} if scene.backend == "ctran" else {}


def earlier_job(scene: Scene) -> None:
    """A process of the crashed job, with the same name and port."""
    rank = scene.rank - scene.size
    os.environ.update(TORCHCOMM_RANK=str(rank), TORCHCOMM_SIZE=str(scene.size))
    side = Ours(scene.backend, "again", None, (rank, scene.size), 10.0)
    side.start("all_reduce", async_op=False)
    scene.meet("crash", [scene.size + r for r in range(scene.size)])
    scene.die()


def same_name(scene: Scene) -> None:
    """The new job must start at once, and must not receive traffic of the old one."""
    for rank in range(scene.size):
        scene.await_end(scene.size + rank)
    with scene.bounded(10.0, "the second start"):
        side = Ours(scene.backend, "again", None, (scene.rank, scene.size), 10.0)
    scene.open.append(side)
    for op in ("all_reduce", "all_gather_single", "barrier"):
        scene.works(side, op)


CELLS = (
    Cell(
        "F20/fork", "a forked child calls and exits, with an operation of the parent in flight",
        "ForkedProcess in the child; nothing changes for the parent", forked, ranks=2,
        backends=OURS,
    ),
    Cell(
        "F20/loader", "workers of a DataLoader are forked, and exit",
        "operations of the parent are right", loader, ranks=2,
    ),
    Cell(
        "F21/exec", "a program is started without closing descriptors", "none is inherited",
        executed, ranks=2, known={"gloo": "sockets of Gloo are inherited"},
    ),
    Cell(
        "F21/port", "rank 0 dies while a program that it started runs", "its ports are free",
        port_after_death, ranks=2, victims={0: -signal.SIGKILL}, backends=OURS,
        known={"gloo": "sockets of Gloo are inherited"},
    ),
    Cell(
        "F30", "a job of the same name and port crashed just before", "the new job starts at once",
        same_name, ranks=2, backends=OURS, helpers=(earlier_job,) * 2,
        serves=True,
    ),
)  # fmt: skip
