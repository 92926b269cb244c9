"""F02 and F04: a rank is alive and does nothing."""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Sequence

import torch

from torchcomms.drill.cell import Cell
from torchcomms.drill.scene import Scene
from torchcomms.drill.side import Side

SILENT = 1


def stopped(scene: Scene) -> None:
    """Rank 1 is stopped, and resumes after the others have raised.

    Its late data must not arrive.
    """
    side = scene.comm()
    scene.works(side)
    scene.meet("entering")
    peers = [r for r in range(scene.size) if r != SILENT]
    if scene.rank == SILENT:
        scene.note_fault()
        signal.raise_signal(signal.SIGSTOP)
        late(scene, side)
        scene.meet("late")
        return
    tensors = times_out(scene, side)
    if scene.backend != "ctran":
        scene.finalize(side)  # before finalize() late data may arrive, which is documented
    for one in tensors:
        one.fill_(7)
    scene.meet("raised", peers)
    if scene.rank == 0:
        scene.send_signal(SILENT, signal.SIGCONT)
    scene.meet("late")
    if any((one != 7).any() for one in tensors):
        scene.find("wrong result", "late data has arrived in a tensor that the program reuses")


def times_out(scene: Scene, side: Side) -> Sequence[torch.Tensor]:
    """An operation without rank 1 must raise in time. Returns its tensors."""
    began = time.monotonic()
    pending = scene.fails_for(
        side, "all_reduce", "CommTimeout", naming=[SILENT], attempts=1, limit_s=scene.limit_s
    )
    took = time.monotonic() - began
    limit = scene.limit_s
    # The lower bound is half the timeout: a survivor that called earlier may have notified this
    # one.
    inside = limit / 2 <= took <= limit + scene.role.slack
    scene.check(inside, f"raised after {took:.2f} s, not within {limit + 1:g} s")
    return pending.tensors if pending is not None else []


def late(scene: Scene, side: Side) -> None:
    """The calls of the resumed rank must raise, because no peer takes part.

    Its first call may complete with right values, if all its data arrived before.
    """
    kinds = "PeerFailed|CommTimeout|StaleGeneration"
    scene.fails_for(side, "all_reduce", kinds, naming=[], attempts=2, limit_s=scene.limit_s)


def hold_the_lock() -> None:
    """Holds the GIL until a signal arrives."""
    ctypes.PyDLL(None).pause()


def lock_of_peer(scene: Scene) -> None:
    """Rank 1 runs for long in code that holds the GIL."""
    side = scene.comm()
    scene.works(side)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    scene.meet("entering")
    peers = [r for r in range(scene.size) if r != SILENT]
    if scene.rank == SILENT:
        scene.note_fault()
        hold_the_lock()
        late(scene, side)
        return
    times_out(scene, side)
    scene.meet("raised", peers)
    if scene.rank == 0:
        scene.send_signal(SILENT, signal.SIGUSR1)


def lock_of_waiter(scene: Scene) -> None:
    """Rank 0 holds the GIL while its own operation times out. Rank 2 must be notified."""
    side = scene.comm()
    scene.works(side)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    scene.meet("entering")
    kinds = "CommTimeout"
    if scene.rank == 0:
        pending = side.start("all_reduce", limit_s=scene.limit_s)
        scene.note_fault()
        hold_the_lock()
        scene.raises(pending.wait, kinds, naming=[SILENT], within_s=0.5, what="wait()")
    elif scene.rank == 2:
        # Its own timeout is long: an error in time is caused by rank 0.
        scene.raises(
            lambda: side.start("all_reduce", async_op=False, limit_s=20 * scene.limit_s),
            kinds, naming=[SILENT], within_s=scene.limit_s + 1, what="all_reduce",
        )  # fmt: skip
        scene.send_signal(0, signal.SIGUSR1)
        scene.meet("over", [SILENT, 2])
    else:
        scene.meet("over", [SILENT, 2])


CELLS = (
    Cell(
        "F02/stopped", "rank 1 is stopped, and resumes when its peers have raised",
        "CommTimeout naming rank 1, within timeout + 1 s; late data changes nothing",
        stopped,
    ),
    Cell(
        "F04/peer", "rank 1 holds the GIL and never calls",
        "CommTimeout naming rank 1, within timeout + 1 s", lock_of_peer,
    ),
    Cell(
        "F04/waiter", "rank 0 holds the GIL while its own operation times out",
        "CommTimeout on rank 2, whose own timeout is long, within timeout + 1 s",
        # On other backends, a timeout is not reported to peers.
        lock_of_waiter, backends=("ctran",),
    ),
)  # fmt: skip
