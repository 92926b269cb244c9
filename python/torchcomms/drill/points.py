"""Requests of a cell's processes to the runner: to meet at a point, and to act on each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchcomms.drill.start import Child


class Points:
    """The open requests. Each is answered when the requested event has happened."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.fault_at: float | None = None  # monotonic seconds of the first fault
        self._children = children
        self._barriers: dict[
            str, tuple[set[int], list[Child]]
        ] = {}  # by point: missing ranks, processes that have arrived
        self._end_waiters: list[tuple[int, Child]] = []

    def request(self, child: Child, kind: str, content: tuple[Any, ...]) -> None:
        match kind:
            case "meet":
                self._arrive(child, *content)
            case "await end":
                self._await_end(child, *content)
            case "signal":
                rank, number = content
                self._children[rank].send(number)
                child.answer()
            case "fault":
                self.fault_at = content[0] if self.fault_at is None else self.fault_at
                child.answer()

    def on_end(self, child: Child) -> None:
        """Answers the processes that wait for the end of `child`."""
        index = child.role.index
        for waiter in [m for i, m in self._end_waiters if i == index]:
            waiter.answer()
        self._end_waiters = [(i, m) for i, m in self._end_waiters if i != index]
        self._release_barriers()

    def _arrive(self, child: Child, point: str, who: tuple[int, ...]) -> None:
        missing, here = self._barriers.setdefault(point, (set(who), []))
        missing.discard(child.role.index)
        here.append(child)
        self._release_barriers()

    def _release_barriers(self) -> None:
        """Answers complete barriers. Exited processes do not count as missing."""
        for point, (missing, here) in list(self._barriers.items()):
            if all(self._children[index].ended for index in missing):
                del self._barriers[point]
                for one in here:
                    one.answer()

    def _await_end(self, child: Child, rank: int) -> None:
        if self._children[rank].ended:
            child.answer()
        else:
            self._end_waiters.append((rank, child))
