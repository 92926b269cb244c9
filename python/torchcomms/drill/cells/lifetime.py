"""F17 and F18: communicators that are finalized at the wrong time, or never."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable

from torchcomms.drill.cell import OURS, Cell, plain
from torchcomms.drill.scene import Scene


def twice(scene: Scene) -> None:
    """Calls finalize() a second time, and operations after the first one."""
    side = scene.comm()
    scene.works(side)
    scene.finalize(side)
    scene.raises(side.finalize, "CommFinalized", within_s=1.0, what="the second finalize()")
    for op in ("all_reduce", "barrier", "send"):
        scene.raises(
            functools.partial(side.start, op), "CommFinalized", within_s=1.0, what=f"{op} after it"
        )
    scene.raises(
        lambda: side.split(range(scene.size), 1.0), "CommFinalized", within_s=1.0, what="split"
    )


def in_flight(scene: Scene) -> None:
    """Calls finalize() while an operation waits for a peer that never comes."""
    side = scene.comm()
    scene.works(side)
    pending = side.start("all_reduce") if scene.rank == 0 else None
    scene.meet("calling")
    scene.open.remove(side)
    # finalize() raises the error of an operation that has failed unobserved.
    ends(scene, side.finalize)
    if pending is not None:
        ends(scene, pending.wait)
    scene.meet("over")


def ends(scene: Scene, wait: Callable[[], object]) -> None:
    """Checks that a call returns in time, with a typed error or with the operation."""
    with scene.bounded(scene.limit_s + 1, "wait()"):
        try:
            wait()
        except Exception as error:
            scene.judge(error, "CommFinalized|PeerFailed|CommTimeout|Aborted", what="wait()")


def by_thread(scene: Scene) -> None:
    """Another thread calls finalize() while this one waits inside an operation."""
    side = scene.comm()
    scene.works(side)
    scene.meet("calling")
    if scene.rank == 0:
        scene.open.remove(side)
        pending = side.start("all_reduce")
        other = threading.Thread(target=side.finalize)
        other.start()
        ends(scene, pending.wait)
        other.join(scene.limit_s + 5)
        scene.check(not other.is_alive(), "finalize() in another thread does not return")
    scene.meet("over")


def dropped(scene: Scene) -> None:
    """The last reference is dropped while an operation is in flight.

    A new communicator must work.
    """
    side = scene.comm()
    scene.works(side)
    pending = side.start("all_reduce") if scene.rank == 0 else None
    scene.meet("calling")
    scene.open.clear()
    with scene.bounded(1.0, "dropping"):
        del side, pending
        gc.collect()
    again = scene.comm(f"{scene.role.run}_again")
    scene.works(again)


def at_exit(scene: Scene, raising: bool) -> None:
    """The interpreter exits with operations in flight and communicators at module level."""
    side = scene.comm()
    scene.works(side)
    scene.meet("calling")
    sys.modules[__name__].__dict__["kept"] = (
        side,
        side.start("all_reduce") if scene.rank == 0 else None,
    )
    scene.meet("started")
    scene.open.clear()
    if raising:
        try:
            raise KeyError("mine")
        except KeyError:
            sys.modules[__name__].__dict__["cycle"] = [sys.exc_info(), side]


CELLS = (
    Cell(
        "F17/double", "finalize() twice, and calls after it", "CommFinalized at once", twice,
        backends=OURS,
    ),
    Cell(
        "F17/inflight", "finalize() with an operation in flight",
        "finalize() returns; the operation completes or raises", in_flight,
    ),
    Cell(
        "F17/thread", "finalize() in another thread while this one waits",
        "both return; the operation completes or raises", by_thread,
    ),
    Cell(
        "F18/dropped", "the last reference is dropped with an operation in flight",
        "the process makes a new communicator", dropped,
    ),
    Cell(
        "F18/exit", "the interpreter exits with operations in flight", "exit at once, status 0",
        functools.partial(at_exit, raising=False), ranks=2, fresh=plain, slow=True, bystander=False,
        keeps=True,
    ),
    Cell(
        "F18/exception", "the interpreter exits with the traceback of an exception alive",
        "exit at once, status 0",
        functools.partial(at_exit, raising=True), ranks=2, fresh=plain, slow=True, bystander=False,
        keeps=True,
    ),
)  # fmt: skip
