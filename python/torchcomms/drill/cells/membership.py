"""F45, and the parts of F02 and F08 about membership: members change."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, Store

import torchcomms
from torchcomms.drill.around import ProcessResources
from torchcomms.drill.cell import OURS, VENDORS, Cell, Skip
from torchcomms.drill.cells.store import server
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene

KINDS = "Mismatch|CommTimeout|PeerFailed"


class Member:
    """A communicator whose members change, and the handles of all ranks of the cell."""

    def __init__(self, scene: Scene, store: Store | None = None) -> None:
        self.scene = scene
        self._store = scene.tcp_store() if store is None else store
        self._turn = 0
        try:
            self.side = scene.comm(
                f"{scene.role.run}_members", store=PrefixStore("members", self._store),
                enable_reconfigure=True,
            )  # fmt: skip
        except torchcomms.Unsupported as error:
            raise Skip(f"{scene.backend} does not support reconfigure()") from error

    @property
    def comm(self) -> torchcomms.TorchComm:
        assert isinstance(self.side, Ours)
        return self.side.comm

    def handles(self, ranks: Sequence[int]) -> list[str]:
        """The handles of these ranks, which all call this method."""
        self._turn += 1
        store = PrefixStore(f"handles/{self._turn}", self.scene.store())
        store.set(str(self.scene.rank), self.comm.get_init_handle())
        return [store.get(str(rank)).decode() for rank in ranks]

    def reconfigure(self, uuid: int, handles: list[str] | set[str], limit_s: float = 10.0) -> None:
        self.comm.reconfigure(uuid, handles, timeout=timedelta(seconds=limit_s)).wait()
        self.side.rank, self.side.size = self.comm.get_rank(), self.comm.get_size()

    def join(self, uuid: int, ranks: Sequence[int]) -> None:
        self.reconfigure(uuid, self.handles(ranks))
        self.scene.works(self.side)


def disagree(scene: Scene) -> None:
    """Rank 2 lists only ranks 1 and 2; the other ranks list all."""
    member = Member(scene)
    all_ranks = list(range(scene.size))
    member.join(1, all_ranks)
    handles = member.handles(all_ranks)
    mine = handles[1:] if scene.rank == 2 else handles
    scene.raises(lambda: member.reconfigure(2, mine), KINDS, within_s=2.0, what="reconfigure")
    scene.meet("failed")
    member.join(3, all_ranks)


def race(scene: Scene) -> None:
    """Ranks 0 and 1 reconfigure with number 2, rank 2 with number 3: no rank may hang."""
    member = Member(scene)
    all_ranks = list(range(scene.size))
    member.join(1, all_ranks)
    handles = member.handles(all_ranks)
    uuid = 3 if scene.rank == 2 else 2
    scene.raises(
        lambda: member.reconfigure(uuid, handles, scene.limit_s), KINDS,
        within_s=scene.limit_s + 1, what="reconfigure",
    )  # fmt: skip
    scene.meet("failed")
    member.join(4, all_ranks)


def death(scene: Scene) -> None:
    """Rank 1 dies during a reconfigure. The others must fail, and go on without it."""
    member = Member(scene)
    all_ranks = list(range(scene.size))
    member.join(1, all_ranks)
    handles = member.handles(all_ranks)
    scene.meet("entering")
    if scene.rank == 1:
        scene.die()
    scene.raises(
        lambda: member.reconfigure(2, handles, scene.limit_s), KINDS, naming=[1],
        within_s=scene.limit_s + 1, what="reconfigure",
    )  # fmt: skip
    member.join(3, [0, 2])


def cycles(scene: Scene) -> None:
    """Reconfigures many times, each time in another order. No resource may grow."""
    member = Member(scene)
    all_ranks = list(range(scene.size))
    member.join(1, all_ranks)
    before: ProcessResources | None = None
    for turn in range(2, 2 + scene.role.rounds):
        shift = turn % scene.size
        member.join(turn, all_ranks[shift:] + all_ranks[:shift])
        if turn == 10:
            before = ProcessResources.now()
    if before is not None:
        more = len(ProcessResources.now().descriptors) - len(before.descriptors)
        scene.check(more <= 2, f"{more} more descriptors after {scene.role.rounds} turns")


def stale(scene: Scene) -> None:
    """Rank 1 is stopped and left out. When it resumes, it must get an error and change nothing."""
    member = Member(scene)
    all_ranks = list(range(scene.size))
    member.join(1, all_ranks)
    scene.meet("stopping")
    if scene.rank == 1:
        scene.note_fault()
        signal.raise_signal(signal.SIGSTOP)
        if scene.backend in VENDORS:
            # The first call may complete, run before the others left, or wait for them in vain.
            kinds = "StaleGeneration|CommTimeout|PeerFailed"
            scene.fails_for(
                member.side, "all_reduce", kinds, naming=[], attempts=2, limit_s=scene.limit_s
            )
        scene.raises(
            lambda: member.side.start("all_reduce", async_op=False), "StaleGeneration",
            within_s=scene.limit_s + 1, what="the call of the resumed rank",
        )  # fmt: skip
        scene.meet("late")
        return
    scene.raises(
        lambda: member.side.start("all_reduce", async_op=False), "CommTimeout", naming=[1],
        within_s=scene.limit_s + 1, what="all_reduce",
    )  # fmt: skip
    member.reconfigure(2, _current_handles(member))
    scene.works(member.side)
    scene.meet("gone on", [0, 2])
    if scene.rank == 0:
        scene.send_signal(1, signal.SIGCONT)
    scene.meet("late")
    scene.works(member.side)


def _current_handles(member: Member) -> list[str]:
    """The handles of ranks 0 and 2 as they are now: they may be new after a failure."""
    scene = member.scene
    store = PrefixStore("others", scene.store())
    store.set(str(scene.rank), member.comm.get_init_handle())
    return [store.get(str(rank)).decode() for rank in (0, 2)]


def without_store(scene: Scene) -> None:
    """The store's server dies. reconfigure() must fail with a type."""
    all_processes = [*range(scene.size + 1)]
    scene.meet("served", all_processes)
    member = Member(scene, scene.tcp_store(scene.role.free_port))
    ranks = list(range(scene.size))
    member.join(1, ranks)
    handles = member.handles(ranks)
    scene.meet("die", all_processes)
    scene.await_end(scene.size)
    scene.raises(
        lambda: member.reconfigure(2, handles, scene.limit_s), "PeerFailed|CommTimeout",
        within_s=scene.limit_s + 1, what="reconfigure",
    )  # fmt: skip


_KILLED: dict[int, int] = {1: -signal.SIGKILL}
_OF: dict[str, Any] = {"backends": OURS, "serves": True}

CELLS = (
    Cell(
        "F02/stale", "rank 1 is stopped, left out of the next membership, and resumes",
        "StaleGeneration on rank 1; nothing changes for its peers", stale, **_OF,
    ),
    Cell(
        "F08/reconfigure", "the store's server is killed before a reconfigure",
        "a typed error within timeout + 1 s", without_store, helpers=(server,), **_OF,
    ),
    Cell(
        "F45/disagree", "members disagree on the set", "all raise within 2 s; the next one works",
        disagree, **_OF,
    ),
    Cell(
        "F45/race", "two reconfigures with different numbers run at the same time",
        "all raise within timeout + 1 s; the next one works", race, **_OF,
    ),
    Cell(
        "F45/death", "rank 1 dies during a reconfigure",
        "its peers raise naming it, and reconfigure without it", death, victims=_KILLED, **_OF,
    ),
    Cell(
        "F45/cycles", "memberships change many times", "values are right; no resource grows",
        cycles, hang_s=120.0, **_OF,
    ),
)  # fmt: skip
