"""F10 to F16: ranks call different operations."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene
from torchcomms.drill.side import Pending, Side

ODD = 2  # the rank in the minority

Call = tuple[str, Shape]
_ENDS = "Gloo aborts the process, or sums what it has; hint check_calls detects it before"


def is_compared(side: Side) -> bool:
    """Returns: whether calls are compared while they run: by `ctran`, and by kernels.

    Kernels may run in place of a library's collectives.
    """
    if not isinstance(side, Ours):
        return False
    by_kernels = any(link.startswith("kernels") for link in side.comm.describe()["links"])
    return by_kernels or side.comm.get_backend() == "ctran"


def disagree(scene: Scene, many: Call, one: Call, checks: bool = False) -> None:
    """All ranks call at once; rank 2 calls something else. No call may return."""
    side = scene.comm(hints={"check_calls": "true"}) if checks else scene.comm()
    scene.works(side)
    scene.meet("calling")
    scene.note_fault()
    returned = refused(scene, side, one if scene.rank == ODD else many, checks)
    if returned is not None:
        scene.find("wrong result", f"{many[0]} returned as if all ranks had called the same")
    scene.meet("over")


def another_root(scene: Scene, many: Call, one: Call) -> None:
    """Rank 2 names another root. A rank that does not wait for rank 2 may get its data."""
    side = scene.comm()
    scene.works(side)
    scene.meet("calling")
    scene.note_fault()
    returned = refused(scene, side, one if scene.rank == ODD else many)
    if returned is not None and (text := returned.wrong()):
        scene.find("wrong result", text)
    scene.meet("called")
    if returned is not None:  # calls are compared with the next collective at the latest
        refused(scene, side, ("barrier", Shape()))
    scene.meet("over")


def refused(scene: Scene, side: Side, call: Call, checks: bool = False) -> Pending | None:
    """The call must raise. Returns the operation if it returned instead."""
    op, shape = call
    compared = checks or is_compared(side)
    within_s = 1.0 if compared else scene.limit_s + 1
    kinds = "Mismatch" if compared else "CommTimeout|PeerFailed|CommError"
    before = len(scene.report.findings)
    started: list[Pending] = []
    error = scene.raises(
        lambda: started.append(side.start(op, shape, async_op=False)), kinds, naming=[ODD],
        within_s=within_s, what=op,
    )  # fmt: skip
    if error is not None:
        return None
    del scene.report.findings[before:]
    return started[0]


def crossed(scene: Scene) -> None:
    """Rank 0 calls A, B; rank 1 calls B, A."""
    side = scene.comm()
    scene.works(side)
    scene.meet("calling")
    scene.note_fault()
    order = ("all_reduce", "all_gather_single")
    first = order[scene.rank]
    compared = is_compared(side)
    kinds = "Mismatch" if compared else "CommTimeout|PeerFailed|CommError"
    fragments = order if compared else ()

    def both() -> None:
        side.start(first, async_op=False)
        side.start(order[1 - scene.rank], async_op=False)

    scene.raises(both, kinds, fragments=fragments, within_s=scene.limit_s + 1, what="the pair")
    scene.meet("over")


def crossed_communicators(scene: Scene, async_op: bool) -> None:
    """Rank 0 uses communicator A first, rank 1 communicator B."""
    sides = [scene.comm(), scene.comm()]
    for side in sides:
        scene.works(side)
    scene.meet("calling")
    scene.note_fault()
    first, second = sides if scene.rank == 0 else reversed(sides)
    if async_op:
        for pending in [side.start("all_reduce") for side in (first, second)]:
            scene.right(pending)
        return

    def both() -> None:
        first.start("all_reduce", async_op=False)
        second.start("all_reduce", async_op=False)

    # Either both ranks time out, or one learns that the other timed out.
    scene.raises(
        both, "CommTimeout|PeerFailed", naming=[1 - scene.rank], within_s=2 * scene.limit_s + 1,
        what="the pair",
    )  # fmt: skip
    scene.meet("over")


def skipped(scene: Scene, order: Sequence[str], kinds: str) -> None:
    """Rank 2 omits one call, and goes on."""
    side = scene.comm()
    scene.works(side)
    scene.meet("calling")
    scene.note_fault()
    kinds = kinds if is_compared(side) else "CommTimeout|PeerFailed|CommError"

    def calls() -> None:
        for number, op in enumerate(order):
            if scene.rank == ODD and number == 1:
                continue
            side.start(op, async_op=False)

    if scene.rank == ODD and len(set(order)) == 1:
        calls()  # no error on this rank: its peers have one call more
    else:
        scene.raises(calls, kinds, naming=[ODD], within_s=scene.limit_s + 1, what="the series")
    scene.meet("over")


def _cell(name: str, what: str, many: Call, one: Call, **known: str) -> Cell:
    return Cell(
        name, what, "all raise within 1 s, naming both calls and rank 2; no call returns",
        functools.partial(disagree, many=many, one=one), known=known,
    )  # fmt: skip


def _checked(name: str, what: str, many: Call, one: Call) -> Cell:
    return Cell(
        f"{name}/checked", f"{what}, and calls are checked",
        "all raise within 1 s, naming both calls and rank 2; no call returns",
        functools.partial(disagree, many=many, one=one, checks=True),
        backends=OURS,
    )  # fmt: skip


_UNCHECKED = "the library does not wait for it; hint check_calls detects it"
_SUM: Call = ("all_reduce", Shape(96))
_FEWER: Call = ("all_reduce", Shape(64))
_WIDER: Call = ("all_reduce", Shape(96, torch.float64))
_MAX: Call = ("all_reduce", Shape(96, reduce_op="max"))
_ROOT_0: Call = ("broadcast", Shape(96, root=0))
_ROOT_1: Call = ("broadcast", Shape(96, root=1))

CELLS = (
    _cell("F10", "rank 2 has another count", _SUM, _FEWER, gloo=_ENDS),
    _checked("F10", "rank 2 has another count", _SUM, _FEWER),
    _cell("F11", "rank 2 has another dtype", _SUM, _WIDER, gloo=_ENDS),
    _checked("F11", "rank 2 has another dtype", _SUM, _WIDER),
    _cell("F12", "rank 2 calls another operation", _SUM, ("barrier", Shape())),
    _cell(
        "F13", "rank 2 has another reduce operation",
        _SUM, _MAX, nccl=_UNCHECKED, gloo=_ENDS,
    ),
    _checked("F13", "rank 2 has another reduce operation", _SUM, _MAX),
    Cell(
        "F14", "rank 2 has another root",
        "a rank that waits for another rank than its peers raises within 1 s, naming both calls "
        "and rank 2; a rank that returns has the data of its root, and raises in its next "
        "collective",
        functools.partial(another_root, many=_ROOT_0, one=_ROOT_1),
        known={"nccl": _UNCHECKED},
    ),
    _checked("F14", "rank 2 has another root", _ROOT_0, _ROOT_1),
    Cell(
        "F15/same", "two ranks call two operations in opposite order",
        "both raise, naming both operations", crossed, ranks=2,
    ),
    Cell(
        "F15/two-sync", "two ranks use two communicators in opposite order, each call waiting",
        "both raise within twice the timeout, naming the peer",
        functools.partial(crossed_communicators, async_op=False), ranks=2,
    ),
    Cell(
        "F15/two-async", "two ranks use two communicators in opposite order, none waiting",
        "all complete with right values",
        functools.partial(crossed_communicators, async_op=True), ranks=2,
    ),
    Cell(
        "F16/kinds", "rank 2 omits one operation of a series of different ones",
        "all raise at the first that differs, naming rank 2",
        functools.partial(
            skipped, order=("barrier", "all_reduce", "all_gather_single", "broadcast"),
            kinds="Mismatch",
        ),
    ),
    Cell(
        "F16/alike", "rank 2 omits one operation of a series of the same",
        "its peers raise at the last one, naming rank 2",
        functools.partial(skipped, order=("barrier",) * 4, kinds="CommTimeout"),
    ),
)  # fmt: skip
