"""Checks U5 to U7 of the failure contract, which hold after every fault, in one process."""

from __future__ import annotations

import gc
import io
import os
import threading
import time
from dataclasses import dataclass

from torch.distributed import HashStore, TCPStore

from torchcomms import events
from torchcomms.drill.cell import BASELINE
from torchcomms.drill.scene import Scene
from torchcomms.drill.side import Side, open_side

# Threads and sockets are released in the background, within this time.
CLEAN_S = 3.0
# The names of threads that a process keeps for later calls.
KEPT_THREADS = ("tc-idle", "tc-timer", "tc-watchdog")


@dataclass(frozen=True)
class ProcessResources:
    """The file descriptors of a process by number, and its threads."""

    descriptors: dict[int, str]
    threads: dict[int, str]

    @staticmethod
    def now() -> ProcessResources:
        descriptors, threads = {}, {}
        for name in os.listdir("/proc/self/fd"):
            try:
                descriptors[int(name)] = os.readlink(f"/proc/self/fd/{name}")
            except FileNotFoundError:  # the descriptor of the listing itself
                continue
        for name in os.listdir("/proc/self/task"):
            try:
                with open(f"/proc/self/task/{name}/comm") as file:
                    threads[int(name)] = file.read().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
        return ProcessResources(descriptors, threads)

    def more_than(self, before: ProcessResources) -> list[str]:
        """What is new since `before`, in words."""
        new = [
            f"descriptor {number} ({to})"
            for number, to in self.descriptors.items()
            if before.descriptors.get(number) != to
        ]
        gone = sum(1 for n, to in before.descriptors.items() if self.descriptors.get(n) != to)
        extra = new if len(new) > gone else []
        return extra + [
            f"thread {number} ({name})"
            for number, name in self.threads.items()
            if number not in before.threads and name not in KEPT_THREADS
        ]


class ResourceCheck:
    """Checks on one surviving rank what no fault may change."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._bystander: Side | None = None
        _warm_up(scene.backend)
        if scene.cell.serves:  # libuv keeps a pipe after the first server of a process
            TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._before = ProcessResources.now()
        self._watching = [r for r in scene.survivors if r not in scene.cell.apart]
        if scene.cell.bystander and scene.rank in self._watching:
            self._bystander = self._watch()
            scene.works(self._bystander)

    def _watch(self) -> Side:
        scene = self._scene
        return scene.comm(f"{scene.role.run}_bystander", ranks=self._watching, limit_s=30.0)

    def check(self) -> None:
        """Checks after the program. Finalizes all communicators that the program has left open."""
        scene = self._scene
        if self._bystander is not None:
            scene.meet("bystander", self._watching)
            try:
                scene.works(self._bystander)
            except Exception as error:
                scene.find("fail", f"an unrelated communicator failed as well: {error}")
        self._check_record()
        if scene.cell.keeps:
            return
        for side in reversed(scene.open[:]):
            try:
                scene.finalize(side)
            except Exception as error:
                scene.find("fail", f"finalize() of '{side.name}': {error}")
        self._bystander = None
        scene.stores.clear()
        scene.open.clear()
        self._check_leftovers()

    def _check_record(self) -> None:
        scene = self._scene
        if not scene.ours or not scene.open:
            return
        text = io.StringIO()
        events.print_table(text)
        known = {event["comm"] for event in events.read()}
        for side in scene.open:
            if side.name not in known:
                scene.find("fail", f"the event ring has no record of '{side.name}'")
        scene.check("state" in text.getvalue(), "the event ring cannot be printed")

    def _check_leftovers(self) -> None:
        pause, until = threading.Event(), time.monotonic() + CLEAN_S
        while True:
            gc.collect()
            left = ProcessResources.now().more_than(self._before)
            if not left or time.monotonic() > until:
                break
            pause.wait(0.01)
        if left:
            shown = ", ".join(left[:6]) + (f" and {len(left) - 6} more" if len(left) > 6 else "")
            self._scene.find("fail", f"left behind: {shown}")


def _warm_up(backend: str) -> None:
    """Makes the process allocate what it keeps forever, so that it does not count as a leak."""
    hints = {"persistent_store": "true"}
    options = {} if backend.startswith(BASELINE) else {"hints": hints}
    side = open_side(backend, "warm_up", HashStore(), (0, 1), 30.0, **options)
    side.start("all_reduce", async_op=True).wait()
    side.finalize()
    del side
    gc.collect()
