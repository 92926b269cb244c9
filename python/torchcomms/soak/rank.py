"""One rank of a soak: runs the steps of the plan, and checks every value."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchcomms.soak.buffers import Buffers, Wrong
from torchcomms.soak.calls import arguments, call
from torchcomms.soak.communicators import Communicators, Member
from torchcomms.soak.device import Device
from torchcomms.soak.outcome import Tally
from torchcomms.soak.plan import Operation, Step, Terms
from torchcomms.soak.show import operation_text
from torchcomms.soak.values import Sample

# The phases of a rank; its place is (step, operation, phase).
PHASES = ("start", "communicators", "call", "wait", "check", "replay", "compare", "idle")
At = Callable[[int, int, str], None]


class StepError(Exception):
    """A step failed on this rank. `wrong` is set for a wrong value."""

    def __init__(self, op: Operation | None, text: str, wrong: Wrong | None = None) -> None:
        super().__init__(text)
        self.op, self.wrong = op, wrong


@dataclass
class _Call:
    """One operation of a step on this rank."""

    op: Operation
    member: Member
    sample: Sample
    buffers: Buffers
    reduction: Any
    works: list[Any] = field(default_factory=list)


class Rank:
    """Runs steps. It calls `at` with its place before each call that may block."""

    def __init__(
        self, terms: Terms, rank: int, device: Device, communicators: Communicators, at: At
    ) -> None:
        self._terms, self._rank, self._device, self._at = terms, rank, device, at
        self._communicators = communicators
        self.tally = Tally()
        self.names: dict[int, str] = {}  # the communicators' names, by slot
        # The progress in the step: 0 while it calls or 1 while it waits, and the number of the call
        # or wait.
        self.progress = (0, 0)

    def run(self, step: Step) -> None:
        """Runs one step. Raises StepError."""
        self._at(step.number, 0, "communicators")
        self.progress = (0, 0)
        with _named(None, "making and finalizing communicators"):
            members = self._communicators.follow(step.number)
            self.names = {slot: member.comm.get_name() for slot, member in members.items()}
        calls = self._replayed(step, members) if step.replays else self._once(step, members)
        if step.compares:
            self._compare(step, calls)
        self.tally.steps += 1
        self.tally.communicators = self._communicators.created

    def _once(self, step: Step, members: dict[int, Member]) -> dict[int, _Call]:
        calls: dict[int, _Call] = {}
        for turn, index in enumerate(step.orders[self._rank]):
            op = step.operations[index]
            self.progress = (0, turn)
            self._be_late(step, index)
            if op.slot not in members:
                continue
            self._at(step.number, index, "call")
            with self._device.stream(op.stream), _named(op, "the call"):
                calls[index] = one = self._prepared(step, op, members[op.slot])
                one.buffers.fill(one.sample)
                self._call(one)
                if op.drops and op.async_op:
                    one.buffers.forget_inputs()
        verdicts: dict[int, torch.Tensor] = {}
        for turn, index in enumerate(step.waits):
            self.progress = (1, turn)
            if index in calls:
                verdicts[index] = self._waited(step.number, calls[index])
        self._judge(step.number, calls, verdicts)
        return calls

    def _replayed(self, step: Step, members: dict[int, Member]) -> dict[int, _Call]:
        """Runs the operations without a graph, then from a graph, with new values each time."""
        calls = {
            op.index: self._prepared(step, op, members[op.slot])
            for op in step.operations
            if op.slot in members
        }
        if not calls:
            return {}
        used = {s for c in calls.values() for s in (c.op.stream, c.op.wait_stream)}

        def body() -> None:
            with self._device.branches(used):
                for one in calls.values():
                    with self._device.stream(one.op.stream):
                        self._call(one)
                for index in step.waits:
                    if index in calls:
                        with self._device.stream(_wait_stream(calls[index].op)):
                            _wait(calls[index])

        replay = body
        for turn in range(step.replays + 1):
            self._at(step.number, 0, "replay")
            for one in calls.values():
                one.sample = self._sample(step, one.op, one.member, turn)
                one.buffers.fill(one.sample)
            with _named(None, f"replay {turn} of a graph" if turn else "the first run of a graph"):
                replay()
                self._device.settle()
                verdicts = {
                    index: one.buffers.good(one.sample, self._device.torch)
                    for index, one in calls.items()
                }
                self._judge(step.number, calls, verdicts, turn)
                if turn == 0:
                    replay = self._device.capture(body)
        self.tally.graphs += 1
        self.tally.replays += step.replays
        return calls

    def _prepared(self, step: Step, op: Operation, member: Member) -> _Call:
        comm = member.comm
        given = arguments(op, comm.get_rank(), comm.get_size())
        sample = self._sample(step, op, member, 0)
        device = self._device.torch
        reduction = sample.operation(comm.get_rank(), device)
        return _Call(op, member, sample, Buffers(given, op, device), reduction)

    def _sample(self, step: Step, op: Operation, member: Member, turn: int) -> Sample:
        seed, group = self._terms.seed, member.group
        salt = f"{seed} {step.number} {op.index} {group}"
        return Sample(op, member.comm.get_size(), salt, turn)

    def _call(self, one: _Call) -> None:
        op, buffers = one.op, one.buffers
        free = self._terms.traits.free_order
        one.works = call(one.member.comm, op, buffers.tensors, one.reduction, free)
        if one.works:  # messages may be between other ranks
            self.tally.calls[op.name] += 1
            self.tally.size_bytes[op.name] += buffers.size_bytes

    def _be_late(self, step: Step, index: int) -> None:
        for straggler in step.stragglers:
            if (straggler.rank, straggler.before) == (self._rank, index):
                with self._device.stream(step.operations[index].stream):
                    self._device.be_late(straggler.kind, straggler.time_us)
                self.tally.late += 1

    def _waited(self, number: int, one: _Call) -> torch.Tensor:
        """Waits for a call.

        Returns whether its values are right, as a bool tensor on the device.
        """
        self._at(number, one.op.index, "wait")
        with self._device.stream(_wait_stream(one.op)), _named(one.op, "waiting"):
            _wait(one)
            if self._device.torch.type == "cpu" and not all(w.is_completed() for w in one.works):
                raise StepError(one.op, "is_completed() is False after wait()")
            return one.buffers.good(one.sample, self._device.torch)

    def _judge(
        self,
        number: int,
        calls: dict[int, _Call],
        verdicts: dict[int, torch.Tensor],
        turn: int = 0,
    ) -> None:
        self._at(number, 0, "check")
        with _named(None, "synchronizing the device"):
            self._device.settle()
        for index, verdict in verdicts.items():
            if bool(verdict):
                continue
            one = calls[index]
            wrong = one.buffers.diagnose(one.sample)
            if wrong is None:
                text = "values were wrong at the first check, and are right at the second"
                raise StepError(one.op, text)
            raise StepError(one.op, f"{f'in replay {turn}: ' if turn else ''}{wrong}", wrong)

    def _compare(self, step: Step, calls: dict[int, _Call]) -> None:
        """Compares the bits of sums across ranks, if their rounding depends on the order."""
        self._at(step.number, 0, "compare")
        for one in calls.values():
            if one.op.name != "all_reduce" or one.sample.exact:
                continue
            with _named(one.op, "comparing the ranks' bits"):
                tensor = one.buffers.tensors["tensor"][0]
                raw = tensor.reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
                device, comm = self._device.torch, one.member.comm
                own = torch.tensor([zlib.crc32(raw)], device=device)
                all_values = torch.zeros(comm.get_size(), dtype=own.dtype, device=device)
                comm.all_gather_single(all_values, own, False)
                sums = all_values.tolist()
                self.tally.calls["comparison"] += 1
                if len(set(sums)) > 1:
                    text = (
                        f"ranks have different bits: checksums {sums} of {operation_text(one.op)}"
                    )
                    raise StepError(one.op, text)


def _wait_stream(op: Operation) -> int:
    """The stream that waits. A synchronous call is ordered only with the stream of the call."""
    return op.wait_stream if op.async_op else op.stream


def _wait(one: _Call) -> None:
    for work in one.works:
        work.wait()


@contextlib.contextmanager
def _named(op: Operation | None, doing: str) -> Iterator[None]:
    """Adds what was done to errors inside the block."""
    try:
        yield
    except StepError:
        raise
    except Exception as error:
        raise StepError(op, f"{doing} raised {type(error).__name__}: {error}") from error
