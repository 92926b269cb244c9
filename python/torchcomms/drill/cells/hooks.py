"""F44: hooks that raise, block, or communicate."""

from __future__ import annotations

import threading
from typing import Any

from torchcomms import ReduceOp
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene


class _Own(Exception):
    """The exception of the hook."""


def raising(scene: Scene) -> None:
    """A hook that raises ends the call with its own exception, before anything is sent."""
    side = scene.comm()
    assert isinstance(side, Ours)

    def fail(name: object, op_id: int, args: object) -> None:
        raise _Own("from the hook")

    hook = side.comm.register_pre_hook(fail)
    try:
        side.start("all_reduce", async_op=False)
        scene.find("fail", "the hook's exception is lost")
    except _Own:
        pass
    hook.remove()
    scene.works(side)
    hook = side.comm.register_post_hook(lambda op_id, args: fail(None, op_id, args))
    try:
        side.start("all_reduce", async_op=False)
        scene.find("fail", "the post-hook's exception is lost")
    except _Own:
        pass
    hook.remove()
    for op in ("all_reduce", "all_gather_single", "barrier"):
        scene.works(side, op)


def blocking(scene: Scene) -> None:
    """Rank 0 blocks in a hook until rank 1 is inside the operation, which must wait."""
    side = scene.comm()
    assert isinstance(side, Ours)
    scene.works(side)
    scene.meet("hooked")
    if scene.rank == 0:
        hook = side.comm.register_pre_hook(lambda name, op_id, args: scene.meet("held", [0, 1]))
        scene.works(side)
        hook.remove()
    else:
        pending = side.start("all_reduce")
        scene.meet("held", [0, 1])
        scene.right(pending)
    scene.works(side)


def recursive(scene: Scene) -> None:
    """A hook calls the same communicator: an error or a result, but no hang and no wrong value."""
    side = scene.comm()
    assert isinstance(side, Ours)
    comm, depth = side.comm, threading.local()

    def again(name: object, op_id: int, args: Any) -> None:  # noqa: ANN401
        if getattr(depth, "inside", False):
            return
        depth.inside = True
        try:
            import torch

            comm.all_reduce(torch.ones(1), ReduceOp.SUM, False)
        finally:
            depth.inside = False

    hook = comm.register_pre_hook(again)
    with scene.bounded(scene.limit_s + 1, "the call"):
        try:
            scene.works(side)
        except Exception as error:
            scene.judge(error, "InvalidArgument|Unsupported|CommError", what="the call in the hook")
    hook.remove()
    scene.works(side)


CELLS = (
    Cell(
        "F44/raises", "a hook raises on all ranks", "its own exception; later calls work", raising,
        ranks=2, backends=OURS,
    ),
    Cell(
        "F44/blocks", "a hook blocks on rank 0", "the operation waits, and is right", blocking,
        ranks=2, backends=OURS,
    ),
    Cell(
        "F44/recursion", "a hook calls the same communicator", "a result or an error", recursive,
        ranks=2, backends=OURS,
    ),
)  # fmt: skip
