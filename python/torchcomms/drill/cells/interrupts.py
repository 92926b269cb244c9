"""F43: Ctrl-C and SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
import time

from torchcomms import events
from torchcomms.drill.buffers import Shape
from torchcomms.drill.cell import ANY, DEATH_S, OURS, Cell
from torchcomms.drill.scene import Scene

WAITER, SOON_S = 0, 1.0


def when_inside(comm: str, op: str, number: int, sent: list[float]) -> threading.Thread:
    """Starts a thread that sends this process a signal when the operation begins once more."""

    def times_begun() -> int:
        mine = [e for e in events.read() if e["comm"] == comm and e["op"] == op]
        return sum(1 for e in mine if e["phase"] == "begin")

    before = times_begun()

    def watch() -> None:
        pause = threading.Event()
        while times_begun() == before:
            pause.wait(0.005)
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def waiting(scene: Scene) -> None:
    """Ctrl-C twice on rank 0, which waits for rank 1.

    Then rank 0 exits as an interrupted program.
    """
    side = scene.comm()
    scene.works(side)
    scene.meet("waiting")
    if scene.rank == WAITER:
        for turn in range(2):
            sent: list[float] = []
            try:
                thread = when_inside(side.name, "recv", signal.SIGINT, sent)
                side.start("recv", Shape(root=1), async_op=False, limit_s=30.0)
                scene.find("fail", f"Ctrl-C number {turn + 1} did not end the call")
            except KeyboardInterrupt:
                took = time.monotonic() - sent[0]
                scene.check(took < SOON_S * scene.role.slack, f"Ctrl-C took {took:.2f} s")
                thread.join()
        (scene.tmp / "findings").write_text("\n".join(f.text for f in scene.report.findings))
        scene.note_fault()
        os._exit(130)
    scene.await_end(WAITER)
    for text in filter(None, (scene.tmp / "findings").read_text().splitlines()):
        scene.find("fail", text)
    with scene.bounded(DEATH_S, "the call after it"):
        scene.fails_for(side, "all_reduce", "PeerFailed", naming=[WAITER])


def starting(scene: Scene) -> None:
    """Ctrl-C while new_comm waits for a rank that never comes."""
    if scene.rank != WAITER:
        scene.meet("over")
        return
    sent: list[float] = []
    store = scene.store()
    keys = store.num_keys()

    def interrupt() -> None:
        pause = threading.Event()
        while store.num_keys() == keys:  # new_comm has written a key
            pause.wait(0.005)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        scene.comm(limit_s=30.0)
        scene.find("fail", "new_comm returned")
    except KeyboardInterrupt:
        took = time.monotonic() - sent[0]
        scene.check(took < SOON_S * scene.role.slack, f"Ctrl-C took {took:.2f} s")
    scene.meet("over")


def terminated(scene: Scene) -> None:
    """SIGTERM ends rank 0 inside an operation, as it ends any program."""
    side = scene.comm()
    scene.works(side)
    scene.meet("waiting")
    if scene.rank == WAITER:
        if scene.ours:
            when_inside(side.name, "all_reduce", signal.SIGTERM, [])
            scene.note_fault()
            side.start("all_reduce", async_op=False, limit_s=30.0)
        scene.die(signal.SIGTERM)
    scene.await_end(WAITER)
    scene.fails_for(side, "all_reduce", "PeerFailed", naming=[WAITER])


CELLS = (
    Cell(
        "F43/wait", "Ctrl-C twice on rank 0, which waits inside recv",
        "KeyboardInterrupt within 1 s; then PeerFailed on the peer", waiting, ranks=2,
        victims={WAITER: ANY}, backends=OURS,
    ),
    Cell(
        "F43/start", "Ctrl-C on rank 0, which waits inside new_comm",
        "KeyboardInterrupt within 1 s", starting, ranks=2, backends=OURS,
    ),
    Cell(
        "F43/sigterm", "SIGTERM on rank 0 inside all_reduce", "rank 0 exits; the peer: PeerFailed",
        terminated, ranks=2, victims={WAITER: -signal.SIGTERM},
    ),
)  # fmt: skip
