"""F19: threads that enqueue, wait, abort and finalize one communicator at the same time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import OURS, Cell
from torchcomms.drill.ours import Ours
from torchcomms.drill.scene import Scene
from torchcomms.drill.side import Side

SMALL = Shape(numel=64)
_TYPES = ("Aborted", "CommFinalized", "PeerFailed", "CommTimeout")


def storm(scene: Scene) -> None:
    """Uses a new communicator in each round, made by a split."""
    side = scene.comm()
    scene.works(side)
    numbers = random.Random(scene.role.seed * 1000 + scene.rank)
    slowest = 0.0
    # Without abort(), a round that fails lasts until the timeout.
    rounds = scene.role.rounds if scene.backend == "ctran" else max(1, scene.role.rounds // 10)
    scene.report.notes["rounds"] = rounds
    for number in range(rounds):
        scene.meet(f"round {number}")  # the previous round may have lasted until a timeout
        child = side.split(range(scene.size), scene.limit_s)
        assert isinstance(child, Ours)
        began = time.monotonic()
        _round(scene, child, numbers)
        slowest = max(slowest, time.monotonic() - began)
        if scene.report.findings:
            scene.find("fail", f"in round {number} of {rounds}")
            return
    scene.report.notes[f"slowest round of rank {scene.rank}, s"] = round(slowest, 3)
    scene.meet("the end")  # the last round may also end at different times
    scene.works(side)


def _round(scene: Scene, child: Ours, numbers: random.Random) -> None:
    """Starts four threads at once; each acts after a random number of empty loops."""
    together = threading.Barrier(4)

    def after_turns(turns: int, action: Callable[[Side], None]) -> Callable[[], None]:
        def run() -> None:
            together.wait()
            for _ in range(turns):
                pass
            try:
                action(child)
            except Exception as error:
                if type(error).__name__ not in _TYPES:
                    scene.find("fail", f"{type(error).__name__}: {error}")

        return run

    actions = (_enqueue, _wait, _abort if scene.backend == "ctran" else _wait, _finalize)
    threads = [
        threading.Thread(target=after_turns(numbers.randrange(20000), action), daemon=True)
        for action in actions
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2 * scene.limit_s + 10
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = [a.__name__ for a, t in zip(actions, threads, strict=True) if t.is_alive()]
    if stuck:
        scene.find("hang", f"threads do not return from {', '.join(stuck)}")


def _enqueue(child: Side) -> None:
    for _ in range(3):
        child.start("all_reduce", SMALL)


def _wait(child: Side) -> None:
    child.start("all_reduce", SMALL).wait()


def _abort(child: Side) -> None:
    assert isinstance(child, Ours)
    child.comm.abort()


def _finalize(child: Side) -> None:
    child.finalize()


CELLS = (
    Cell(
        "F19", "four threads enqueue, wait, abort and finalize, in random order, round after round",
        "only typed errors; every call returns", storm, ranks=2, backends=OURS, hang_s=120.0,
    ),
)  # fmt: skip
