"""F27 and F28: foreign connections to the ports, and ranks with a wrong identity."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.distributed import PrefixStore

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.cells.processes import listening_ports
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene

_SILENT = 50  # connections that send one byte and stay open
_MEMORY_KIB = 32 << 10
_TCP: dict[str, Any] = {"hints": {"ctran::transport": "tcp"}}
_GREETINGS = (
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes.fromhex("16030100c8010000c40303") + bytes(190),  # a TLS hello
    struct.pack("<Q", 2**31 - 1) * 8,
    struct.pack("<Q", 2**63) * 8,
    b"\xff" * 4096,
)


def attack(ports: list[int], numbers: random.Random) -> Iterator[list[socket.socket]]:
    """Connects to every port in every way, once per step. Yields the connections that it keeps."""
    kept: list[socket.socket] = []
    while True:
        for port in ports:
            for greeting in (*_GREETINGS, numbers.randbytes(numbers.randrange(1, 300))):
                with contextlib.suppress(OSError):
                    stranger = socket.create_connection(("127.0.0.1", port), timeout=1.0)
                    stranger.sendall(greeting)
                    if numbers.random() < 0.5:  # closes with RST instead of FIN
                        linger = struct.pack("ii", 1, 0)
                        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    stranger.close()
            if len(kept) < _SILENT:
                with contextlib.suppress(OSError):
                    kept.append(socket.create_connection(("127.0.0.1", port), timeout=1.0))
                    kept[-1].sendall(b"t")
        yield kept


def at_work(scene: Scene) -> None:
    """Strangers connect while operations run, without any effect."""
    side = scene.comm(f"{scene.role.run}_open", **(_TCP if scene.backend == "ctran" else {}))
    scene.works(side)
    files = [scene.tmp / f"ports{rank}" for rank in range(scene.size)]
    files[scene.rank].write_text(" ".join(map(str, listening_ports())))
    scene.meet("listening")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ports = [int(p) for file in files for p in file.read_text().split()]
    scene.report.notes["ports"] = len(ports)
    step = attack(ports, random.Random(scene.role.seed + scene.rank))
    kept: list[socket.socket] = []
    for _ in range(10):
        kept = next(step)
        scene.works(side)
    # A large operation, and a new communicator, while silent connections are open.
    scene.right(side.start("all_reduce", Shape(1 << 18), async_op=False))
    again = scene.comm(f"{scene.role.run}_later", **(_TCP if scene.backend == "ctran" else {}))
    scene.works(again)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
    scene.check(more < _MEMORY_KIB, f"memory grew by {more} KiB, allowed is {_MEMORY_KIB} KiB")
    scene.meet("over")
    for one in kept:
        one.close()


def unwanted_connections(scene: Scene) -> None:
    """Connects to every port that a rank opens, from its start until all ranks are connected."""
    numbers = random.Random(scene.role.seed)
    scene.meet("go", [*range(scene.size), scene.rank])
    pids = [int((scene.tmp / f"pid{rank}").read_text()) for rank in range(scene.size)]
    while not all((scene.tmp / f"connected{rank}").exists() for rank in range(scene.size)):
        ports = [port for pid in pids for port in _ports_of(pid)]
        next(attack(ports, numbers))
    scene.report.notes["knocked"] = True


def _ports_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        names = os.listdir(f"/proc/{pid}/fd")
        links = set()
        for name in names:
            with contextlib.suppress(OSError):
                links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [
            int(fields[1].rpartition(":")[2], 16)
            for fields in table
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links
        ]
    return []


def at_start(scene: Scene) -> None:
    """Strangers connect during the rendezvous of the ranks."""
    (scene.tmp / f"pid{scene.rank}").write_text(str(os.getpid()))
    scene.meet("go", [*range(scene.size + 1)])
    try:
        for number in range(5):
            side = scene.comm(
                f"{scene.role.run}_{number}", limit_s=20.0,
                **(_TCP if scene.backend == "ctran" else {}),
            )  # fmt: skip
            scene.works(side)
            scene.finalize(side)
    finally:
        (scene.tmp / f"connected{scene.rank}").touch()


def duplicate(scene: Scene) -> None:
    """Rank 2 claims to be rank 1."""
    rank = min(scene.rank, 1)
    claims(scene, (rank, scene.size), "Mismatch", ["rank 1"])


def too_high(scene: Scene) -> None:
    """Rank 2 claims to be rank 7 of 3 and is refused. The other ranks time out."""
    if scene.rank == 2:
        claims(scene, (7, scene.size), "InvalidArgument", ["7", "3"])
    else:
        claims(scene, (scene.rank, scene.size), "CommTimeout", ["2"], scene.limit_s + 1)


def other_size(scene: Scene) -> None:
    """Rank 2 claims that there are 4 ranks."""
    size = 4 if scene.rank == 2 else scene.size
    claims(scene, (scene.rank, size), "Mismatch", ["3", "4"])


def claims(
    scene: Scene, place: tuple[int, int], kinds: str, fragments: list[str], within_s: float = 2.0
) -> None:
    store = PrefixStore("claimed", scene.store())
    scene.raises(
        lambda: Ours(scene.backend, "claimed", store, place, scene.limit_s), kinds,
        fragments=fragments, within_s=within_s, what="new_comm",
    )  # fmt: skip


def one_port(scene: Scene) -> None:
    """Two jobs get the same MASTER_PORT: ranks 0, 1 and ranks 2, 3."""
    job, rank = divmod(scene.rank, 2)
    if job == 1:
        scene.meet("first is connected")
    side = None
    try:
        with scene.bounded(scene.limit_s + 2, "new_comm"):
            side = Ours(scene.backend, f"job {job}", None, (rank, 2), scene.limit_s)
    except Exception as error:
        scene.judge(error, "ResourceExhausted|CommTimeout|PeerFailed|Mismatch", what="new_comm")
    if side is not None:
        scene.open.append(side)
        for op in ("all_reduce", "all_gather_single"):
            scene.works(side, op)
    if job == 0:
        scene.check(side is not None, "the first job must start")
        scene.meet("first is connected")


CELLS = (
    Cell(
        "F27/work", "strangers connect, send garbage, reset or stay silent while operations run",
        "operations are right; memory does not grow", at_work, ranks=2, backends=OURS,
    ),
    Cell(
        "F27/start", "strangers connect to every port that opens during the rendezvous",
        "the start-up completes", at_start, ranks=2, backends=OURS, helpers=(unwanted_connections,),
    ),
    Cell(
        "F28/duplicate", "two processes claim to be rank 1", "all raise Mismatch within 2 s",
        duplicate, backends=OURS,
    ),
    Cell(
        "F28/rank", "a process claims to be rank 7 of 3",
        "InvalidArgument there, CommTimeout naming rank 2 on peers", too_high, backends=OURS,
    ),
    Cell(
        "F28/size", "a process claims that there are 4 ranks, the others 3",
        "all raise Mismatch within 2 s, naming both", other_size, backends=OURS,
    ),
    Cell(
        "F28/port", "two jobs get the same port, one after the other",
        "the first runs; the second runs as well, or raises a typed error", one_port, ranks=4,
        backends=OURS, serves=True,
    ),
)  # fmt: skip
