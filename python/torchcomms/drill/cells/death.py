"""F01 and F03: the process of a rank exits."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys

from torch.distributed import PrefixStore

from torchcomms.drill.buffers import COLLECTIVES, Shape
from torchcomms.drill.cell import DEATH_S, OURS, Cell
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene
from torchcomms.drill.side import Side
from torchcomms.drill.wire import KillingProxy

VICTIM = 1
LARGE = Shape(numel=1 << 18)  # long enough to die inside
_RELEASE_UNNAMED = "a rank that dies while it releases its peers is not named"


def before(scene: Scene) -> None:
    if scene.rank == VICTIM:
        scene.die()
    limit = scene.limit_s
    scene.raises(
        lambda: scene.comm(limit_s=limit), "CommTimeout", naming=[VICTIM], within_s=limit + 1,
        what="new_comm",
    )  # fmt: skip


def bootstrap(scene: Scene, messages: int) -> None:
    """Rank 1 dies after `messages` messages with the store, or right after the start-up."""
    name = f"{scene.role.run}_mortal"
    if scene.rank == VICTIM:
        proxy = KillingProxy(scene.role.store_port, messages, scene.note_fault_from_thread)
        store = PrefixStore(name, scene.tcp_store(proxy.port))
        proxy.arm()
        scene.comm(name, store=store)
        scene.die()

    def use() -> None:
        side = scene.comm(name, store=PrefixStore(name, scene.tcp_store()))
        for _ in range(3):
            scene.works(side)

    kinds = "PeerFailed|CommTimeout"
    scene.raises(use, kinds, naming=[VICTIM], within_s=scene.limit_s + 1, what="the start-up")


def idle(scene: Scene) -> None:
    side = scene.comm()
    scene.works(side)
    scene.meet("idle")
    if scene.rank == VICTIM:
        scene.die()
    scene.await_end(VICTIM)
    fails_at_once(scene, side)


def fails_at_once(scene: Scene, side: Side) -> None:
    """An operation, and every later one, must raise an error that names rank 1."""
    with scene.bounded(DEATH_S, "all_reduce"):
        scene.fails_for(side, "all_reduce", "PeerFailed", naming=[VICTIM])
    with scene.bounded(DEATH_S, "the next operation"):
        scene.fails_for(side, "all_reduce", "PeerFailed", naming=[VICTIM])


def inside(scene: Scene, op: str) -> None:
    """Rank 1 starts the operation and dies, while survivors are in it or about to enter it."""
    side = scene.comm()
    scene.works(side)
    scene.meet("entering")
    if scene.rank == VICTIM:
        side.start(op, LARGE)
        scene.die()
    scene.fails_for(side, op, "PeerFailed", naming=[VICTIM], shape=LARGE)


def inside_split(scene: Scene) -> None:
    side = scene.comm()
    scene.works(side)
    scene.meet("entering")
    if scene.rank == VICTIM:
        if isinstance(side, Ours):
            side.comm.register_pre_hook(lambda name, op_id, args: scene.die())
            side.split(range(scene.size), scene.limit_s)
        scene.die()

    def split() -> None:
        child = side.split(range(scene.size), scene.limit_s)
        if child is not None:
            scene.open.append(child)
            scene.works(child)

    scene.raises(split, "PeerFailed", naming=[VICTIM], within_s=scene.limit_s + 1, what="split")


def inside_finalize(scene: Scene) -> None:
    side = scene.comm()
    scene.works(side)
    scene.meet("entering")
    if scene.rank == VICTIM:
        if isinstance(side, Ours):
            side.comm.register_pre_hook(lambda name, op_id, args: scene.die())
            side.finalize()
        scene.die()
    with scene.bounded(DEATH_S, "finalize()"):
        scene.finalize(side)


def leaves(scene: Scene, how: str) -> None:
    """Rank 1 exits as a program that fails, or that has finished."""
    side = scene.comm()
    scene.works(side)
    scene.meet("leaving")
    if scene.rank == VICTIM:
        scene.note_fault()
        if how == "_exit":
            os._exit(3)
        scene.open.clear()
        del side
        gc.collect()
        if how == "exit":
            sys.exit(0)
        os._exit(1)  # as an interpreter does after an uncaught exception
    scene.fails_for(side, "all_reduce", "PeerFailed", naming=[VICTIM])


KILLED = {VICTIM: -signal.SIGKILL}
_TYPED = "PeerFailed naming rank 1, within a second of the death"

CELLS = (
    Cell(
        "F01/before", "rank 1 is killed before it joins",
        "CommTimeout naming rank 1, within timeout + 1 s", before, victims=KILLED,
    ),
    *(
        Cell(
            f"F01/bootstrap-{messages}",
            f"rank 1 is killed in new_comm, after message {messages} of its traffic with the store",
            "PeerFailed or CommTimeout naming rank 1, within timeout + 1 s",
            functools.partial(bootstrap, messages=messages),
            victims=KILLED,
            serves=True,
            known=dict.fromkeys(OURS, _RELEASE_UNNAMED),
        )
        for messages in (2, 6, 12)
    ),
    Cell("F01/idle", "rank 1 is killed while all are idle", _TYPED, idle, victims=KILLED),
    *(
        Cell(
            f"F01/{op}", f"rank 1 is killed inside {op}", _TYPED,
            functools.partial(inside, op=op), victims=KILLED, detect_s=DEATH_S,
        )
        for op in COLLECTIVES
    ),
    Cell(
        "F01/split", "rank 1 is killed inside split", _TYPED, inside_split,
        victims=KILLED, detect_s=DEATH_S,
    ),
    Cell(
        "F01/finalize", "rank 1 is killed inside finalize", "finalize() of the peers succeeds",
        inside_finalize, victims=KILLED,
    ),
    Cell(
        "F03/raise", "rank 1 raises before the operation", _TYPED,
        functools.partial(leaves, how="raise"), victims={VICTIM: 1}, detect_s=DEATH_S,
    ),
    Cell(
        "F03/exit", "rank 1 calls sys.exit(0) before the operation", _TYPED,
        functools.partial(leaves, how="exit"), victims={VICTIM: 0}, detect_s=DEATH_S,
    ),
    Cell(
        "F03/_exit", "rank 1 calls os._exit(3) before the operation", _TYPED,
        functools.partial(leaves, how="_exit"), victims={VICTIM: 3}, detect_s=DEATH_S,
    ),
)  # fmt: skip
