"""F06 and F07: the network between hosts loses packets, or is slow. Every rank is a host."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from torch.distributed import PrefixStore

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OWN, Cell, Program
from torchcomms.drill.cells.membership import Member
from torchcomms.drill.hosts import Hub, missing, own_host
from torchcomms.drill.scene import Scene
from torchcomms.drill.side import Side

APART = 1
_PEERS = (0, 2)
_ROUNDS = 20  # operations that succeed before the fault happens inside one
_SLOW = "1mbit"
_DELAY_S = 0.2


def faulty(scene: Scene, inject: Callable[[Hub], None]) -> None:
    """The hub: the fault happens when rank 0 asks for it."""
    hub = Hub(scene)
    scene.meet("strike", [0, scene.rank])
    scene.note_fault()
    inject(hub)
    scene.meet("struck", [*range(scene.size + 1)])
    for rank in range(scene.size):  # this process is the network
        scene.await_end(rank)


def partition(scene: Scene, inside: bool) -> None:
    """All ranks must raise in time, and the majority must go on alone."""
    member: Member | None = None
    if scene.ours:
        member = Member(scene, PrefixStore("members", scene.store()))
        member.join(1, range(scene.size))
        side = member.side
    else:
        side = scene.comm()
    apart = scene.rank == APART
    all_processes = [*range(scene.size + 1)]
    if not inside:
        scene.works(side)
        if scene.rank == 0:
            scene.meet("strike", [0, scene.size])
        scene.meet("struck", all_processes)
    inject_round = _ROUNDS if inside and scene.rank == 0 else None
    scene.raises(
        functools.partial(_until_it_fails, scene, side, inject_round), "CommTimeout|PeerFailed",
        naming=_PEERS if apart else [APART], within_s=scene.limit_s + 1, what="all_reduce",
    )  # fmt: skip
    if inside:
        scene.meet("struck", all_processes)
    if member is not None and not apart:
        member.join(2, _PEERS)
    scene.meet("over")


def _until_it_fails(scene: Scene, side: Side, inject_round: int | None) -> None:
    """Repeats an operation: a rank that still receives may complete one more."""
    for number in itertools.count():
        if number == inject_round:
            scene.meet("strike", [0, scene.size])
        scene.right(side.start("all_reduce", Shape(1 << 16)))


def slow(scene: Scene) -> None:
    """A slow network must not cause errors."""
    side = scene.comm(limit_s=30.0)
    scene.works(side)
    if scene.rank == 0:
        scene.meet("strike", [0, scene.size])
    scene.meet("struck", [*range(scene.size + 1)])
    for op in ("all_reduce", "all_gather_single", "broadcast", "barrier"):
        scene.right(side.start(op, Shape(1 << 13), async_op=False))


def _injecting(method: Callable[..., None], **how: Any) -> Program:  # noqa: ANN401
    """A hub that applies this fault to the host of rank 1."""
    inject = functools.partial(method, rank=APART, **how)
    return functools.partial(faulty, inject=inject)


_CUTS = {
    "F06": ("rank 1 is cut off from its peers", True, True),
    "F07/mute": ("packets from rank 1 are lost", True, False),
    "F07/deaf": ("packets to rank 1 are lost", False, True),
}
_WHEN = {"idle": False, "inside": True}
_HOSTS: dict[str, Any] = {
    "backends": (*OWN, "c10d:gloo"), "enter": own_host, "missing": missing,
}  # fmt: skip

CELLS = (
    *(
        Cell(
            f"{name}/{when}" if name == "F06" else f"{name}-{when}",
            f"{what}, {'inside all_reduce' if inside else 'while all are idle'}",
            "all raise within timeout + 1 s, naming the other side; the majority reconfigures",
            functools.partial(partition, inside=inside),
            helpers=(_injecting(Hub.cut, sends=sends, receives=receives),),
            apart=(APART,),
            **_HOSTS,
        )
        for name, (what, sends, receives) in _CUTS.items()
        for when, inside in _WHEN.items()
    ),
    Cell(
        "F07/slow", "the link to rank 1 carries 1 Mbit/s", "operations are right", slow,
        helpers=(_injecting(Hub.slow, rate=_SLOW),),
        **_HOSTS,
    ),
    Cell(
        "F07/delay", "packets from rank 1 arrive 200 ms later", "operations are right", slow,
        helpers=(_injecting(Hub.delay, seconds=_DELAY_S),),
        **_HOSTS,
    ),
)  # fmt: skip
