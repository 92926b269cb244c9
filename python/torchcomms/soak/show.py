"""Shows the outcome of a soak as text and as JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from torchcomms._table import human_bytes, table
from torchcomms.soak.lives import lives
from torchcomms.soak.plan import Operation

if TYPE_CHECKING:
    from torchcomms.soak.outcome import Failure, Outcome
    from torchcomms.soak.request import Request

_DEFAULTS = {field.name: field.default for field in fields(Operation)}


def operation_text(op: Operation) -> str:
    """The operation with all fields that differ from the defaults:

    "all_reduce(slot=1, numel=7, ...)".
    """
    values = {
        name: value
        for name, value in asdict(op).items()
        if name not in ("name", "index", "messages") and value != _DEFAULTS[name]
    }
    if op.messages:
        values["messages"] = [(m.src, m.dst, m.numel) for m in op.messages]
    return f"{op.name}({', '.join(f'{name}={value}' for name, value in values.items())})"


def communicator_text(request: Request, step: int, slot: int, rank: int) -> str:
    """The communicator of a rank in a slot at a step:

    "soak_2_7 (split, ...), rank 0 of ranks [2, 0]".
    """
    life = lives(request.seed, request.ranks, step)[slot]
    place = life.group_of(rank)
    kind = "split" if life.parent is not None else "new"
    group = list(place[1]) if place is not None else []
    own = f"rank {group.index(rank)} of ranks {group}" if group else "without this rank"
    return f"{life.name} ({kind}, made before step {life.born}), {own}"


def again(request: Request, step: int) -> str:
    """The command that runs this step alone."""
    arguments = ["torchcomms", "soak", "--backend", request.backend, "--device", request.device]
    arguments += ["--ranks", str(request.ranks), "--seed", str(request.seed)]
    arguments += ["--from-step", str(step), "--steps", "1", "--limit", f"{request.limit_s:g}"]
    arguments += ["--bytes", str(request.most_bytes)]
    for name, value in request.hints.items():
        arguments += ["--hint", f"{name}={value}"]
    return shlex.join(arguments)


def failure_text(request: Request, failure: Failure) -> str:
    """All that is known about a failure, in lines.

    The first and the last line say what failed, because the beginning of long output is often lost.
    """
    head = f"{failure.kind} at step {failure.step} on rank {failure.rank}, seed {request.seed}"
    lines = [head, *(f"  {line}" for line in failure.text.splitlines())]
    if failure.operation is not None:
        slot = int(failure.operation["slot"])
        lines += [
            f"operation {failure.operation['index']}: {failure.operation['text']}",
            "communicator: " + communicator_text(request, failure.step, slot, failure.rank),
        ]
    if failure.records:
        lines.append(f"records of calls: {failure.records}")
    lines += [f"rank {rank}: {text}" for rank, text in sorted(failure.ranks.items())]
    lines += [f"run it again: {again(request, failure.step)}"]
    if failure.step > request.from_step:
        first = max(failure.step - 20, request.from_step)
        count = failure.step - first + 1
        lines += [f"if the failure needs earlier steps: --from-step {first} --steps {count}"]
    short = "" if failure.operation is None else f": {failure.operation['text']}"
    return "\n".join([*lines, head + short])


def summary(outcome: Outcome) -> str:
    """The table of operations, and two lines about the whole run."""
    rows = [
        (name, outcome.calls[name], human_bytes(outcome.size_bytes[name]))
        for name in sorted(outcome.calls)
    ]
    lines = [table(("operation", "calls", "bytes"), rows, right=(1, 2)), ""]
    request = outcome.request
    lines.append(
        f"{outcome.steps} steps from {request.from_step} on {request.ranks} ranks of"
        f" {request.backend} on {request.device} in {outcome.seconds:.1f} s"
        f" ({outcome.steps / max(outcome.seconds, 1e-9):.1f} a second), seed {request.seed}"
    )
    lines.append(
        f"{sum(outcome.calls.values())} calls of all ranks, {outcome.communicators} communicators,"
        f" {outcome.late} late ranks, {outcome.graphs} graphs replayed {outcome.replays} times"
    )
    return "\n".join(lines)


def as_object(outcome: Outcome) -> dict[str, Any]:
    """The outcome as one object of plain values, for JSON."""
    import os
    import platform

    import torch

    import torchcomms

    request = outcome.request
    failure = outcome.failure
    return {
        "ok": failure is None,
        "torchcomms": torchcomms.__version__,
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "backend": request.backend,
        "device": request.device,
        "ranks": request.ranks,
        "hints": request.hints,
        "seed": request.seed,
        "from_step": request.from_step,
        "steps": outcome.steps,
        "seconds": round(outcome.seconds, 3),
        "steps_per_s": round(outcome.steps / max(outcome.seconds, 1e-9), 3),
        "operations": {
            name: {"calls": outcome.calls[name], "bytes": outcome.size_bytes[name]}
            for name in sorted(outcome.calls)
        },
        "communicators": outcome.communicators,
        "late": outcome.late,
        "graphs": outcome.graphs,
        "replays": outcome.replays,
        "failure": None
        if failure is None
        else {**asdict(failure), "again": again(request, failure.step)},
    }
