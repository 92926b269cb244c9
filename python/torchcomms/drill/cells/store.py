"""F08: the server of the rendezvous store dies."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.scene import Scene

NAME = "served"


def serve(scene: Scene) -> TCPStore:
    """Serves the store of this cell, in this process."""
    limit = timedelta(seconds=60)
    return TCPStore(
        "127.0.0.1", scene.role.free_port, is_master=True, wait_for_workers=False, timeout=limit
    )


def server(scene: Scene) -> None:
    """Serves the store until the ranks ask it to die."""
    store = serve(scene)
    all_processes = [*range(scene.size), scene.rank]
    scene.meet("served", all_processes)
    scene.meet("die", all_processes)
    del store
    scene.die()


def early(scene: Scene) -> list[int]:
    """The server, and the ranks that start before its end."""
    return [*range(scene.size - 1), scene.size]


def server_of_start_up(scene: Scene) -> None:
    """Dies during a rendezvous, after ranks have written keys and before all have come."""
    store = serve(scene)
    all_processes = [*range(scene.size), scene.rank]
    scene.meet("served", all_processes)
    keys, pause, until = store.num_keys(), threading.Event(), time.monotonic() + 30
    scene.meet("connected", early(scene))
    while store.num_keys() < keys + 2 and time.monotonic() < until:
        pause.wait(0.001)
    scene.die()


def during(scene: Scene) -> None:
    scene.meet("served", [*range(scene.size + 1)])
    if scene.rank == scene.size - 1:
        scene.await_end(scene.size)  # starts only after the server has died
        return
    port = scene.role.free_port
    store = PrefixStore(NAME, scene.tcp_store(port))
    scene.meet("connected", early(scene))
    scene.raises(
        lambda: scene.comm(NAME, store=store, limit_s=60.0), "PeerFailed",
        fragments=[f"127.0.0.1:{port}"], within_s=2.0, what="new_comm",
    )  # fmt: skip


def after(scene: Scene) -> None:
    all_processes = [*range(scene.size + 1)]
    scene.meet("served", all_processes)
    store = PrefixStore(NAME, scene.tcp_store(scene.role.free_port))
    side = scene.comm(NAME, store=store)
    scene.works(side)
    scene.meet("die", all_processes)
    pending = side.start("all_reduce", Shape(numel=1 << 16))
    scene.await_end(scene.size)
    scene.right(pending)
    for op in ("all_gather_single", "broadcast", "barrier"):
        scene.works(side, op)


def split_after(scene: Scene) -> None:
    """A split on ctran needs no store; on gloo it uses the store that rank 0 serves."""
    all_processes = [*range(scene.size + 1)]
    scene.meet("served", all_processes)
    side = scene.comm(NAME, store=PrefixStore(NAME, scene.tcp_store(scene.role.free_port)))
    scene.works(side)
    scene.meet("die", all_processes)
    scene.await_end(scene.size)
    child = side.split(range(scene.size), 10.0)
    assert child is not None
    scene.open.append(child)
    scene.works(child)


CELLS = (
    Cell(
        "F08/during", "the store's server is killed during the rendezvous",
        "PeerFailed naming the store's address, in less than 2 s",
        during, helpers=(server_of_start_up,), bystander=False, serves=True,
    ),
    Cell(
        "F08/after", "the store's server is killed when all are connected", "operations are right",
        after, helpers=(server,), serves=True,
    ),
    Cell(
        "F08/split", "the store's server is killed before a split", "the split works",
        split_after, helpers=(server,), serves=True, backends=OURS,
    ),
)  # fmt: skip
