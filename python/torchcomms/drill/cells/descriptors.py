"""F22: a process runs out of file descriptors."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
from collections.abc import Iterator

from torch.distributed import PrefixStore

from torchcomms.drill.cell import OWN, Cell
from torchcomms.drill.scene import Scene

POOR = 1


@contextlib.contextmanager
def few(spare: int) -> Iterator[None]:
    """Limits the process to `spare` new descriptors inside the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] <= highest:  # free lower numbers would be spare, too
        taken.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


def at_start(scene: Scene, spare: int) -> None:
    """Rank 1 cannot finish its start-up.

    The other ranks must learn it; the second try must work.
    """
    name = f"{scene.role.run}_poor"
    store = PrefixStore("first", scene.store())
    if scene.rank == POOR:
        with few(spare):
            scene.raises(
                lambda: scene.comm(name, store=store), "ResourceExhausted",
                fragments=["descriptor"], within_s=scene.limit_s + 1, what="new_comm",
            )  # fmt: skip
    else:
        scene.raises(
            lambda: scene.comm(name, store=store), "PeerFailed|CommTimeout", naming=[POOR],
            within_s=scene.limit_s + 1, what="new_comm",
        )  # fmt: skip
    scene.meet("second try")
    again = scene.comm(name, store=PrefixStore("second", scene.store()))
    scene.works(again)


def at_split(scene: Scene) -> None:
    """A split of ctran needs no descriptor.

    On other backends it fails with a type, and works later.
    """
    side = scene.comm(limit_s=scene.limit_s)  # splits inherit the timeout
    scene.works(side)
    scene.meet("splitting")

    def split() -> None:
        child = side.split(range(scene.size), scene.limit_s)
        assert child is not None
        scene.open.append(child)
        scene.works(child)

    if scene.backend == "ctran":
        with few(3):
            split()
        return
    if scene.rank == POOR:
        with few(3):
            scene.raises(
                split, "ResourceExhausted", fragments=["descriptor"], within_s=scene.limit_s + 1
            )
    else:
        scene.raises(split, "PeerFailed|CommTimeout", naming=[POOR], within_s=scene.limit_s + 1)
    scene.meet("second try")
    split()


CELLS = (
    *(
        Cell(
            f"F22/start-{spare}", f"rank 1 has {spare} descriptors left in new_comm",
            "ResourceExhausted on rank 1, an error naming rank 1 on peers; the next try works",
            functools.partial(at_start, spare=spare), backends=OWN, serves=True,
        )
        for spare in (0, 3, 6)
    ),
    Cell(
        "F22/split", "rank 1 has 3 descriptors left in a split",
        "it works, or ResourceExhausted on rank 1; the next try works", at_split, backends=OWN,
    ),
)  # fmt: skip
