"""Starts the measuring processes on this host, and ends them in any case."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from torch.distributed import TCPStore

from torchcomms.bench.errors import BenchError
from torchcomms.bench.measure import silent
from torchcomms.bench.plan import Plan, Report
from torchcomms.bench.result import Point

_SILENCE_S = 180.0  # every step of a worker has a shorter timeout
_GRACE_S = 10.0  # for the other processes after one has failed: they may report more

Processes = Sequence["subprocess.Popen[bytes]"]


def launch(
    plan: Plan, ranks: int, progress: Report = silent, note: Report = silent
) -> Iterator[Point]:
    """Runs `plan` on `ranks` new processes of this host. Yields the points as they arrive.

    No process outlives the iterator, also if the caller leaves it early.

    Args:
        plan: what to measure.
        ranks: the number of processes.
        progress: called with a label before each group of points.
        note: called with a sentence for each point that has no measurement, and for each wrong
            value.
    Raises:
        BenchError: the plan is not valid, or a process fails or is silent for 180 s.
    """
    plan.check(ranks)
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    reader, writer = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            processes.append(_start(plan, rank, ranks, store.port, writer))
        os.close(writer)
        writer = -1
        yield from _answers(reader, processes, progress, note)
        _check_exits(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def _start(plan: Plan, rank: int, ranks: int, port: int, answers: int) -> subprocess.Popen[bytes]:
    # The measuring world is independent of the launcher of this process.
    foreign = ("TORCHCOMM_RANK", "TORCHCOMM_SIZE", "TORCHCOMM_BOOTSTRAP_", "OMPI_", "PMI_", "PALS_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",  # ranks connect to the store of this process
    )
    return subprocess.Popen(
        [sys.executable, "-m", "torchcomms.bench.worker", plan.to_json(), str(answers)],
        env=environment,
        pass_fds=[answers],
        stdin=subprocess.DEVNULL,
        stdout=2,  # to stderr: stdout of this process is for results
        start_new_session=True,  # Ctrl-C reaches only this process, which ends the others
    )


def _answers(reader: int, processes: Processes, progress: Report, note: Report) -> Iterator[Point]:
    """Reads the pipe until every worker has closed it."""
    label, pending, errors = "start", b"", list[str]()
    deadline = time.monotonic() + _SILENCE_S
    while True:
        ready, _, _ = select.select([reader], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            break
        data = os.read(reader, 65536)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            kind, content = json.loads(line)
            if kind == "point":
                yield Point.from_json(content)
            elif kind == "error":
                errors.append(content)
            elif kind == "note":
                note(content)
            else:
                label = content
                progress(content)
        if not errors:
            deadline = time.monotonic() + _SILENCE_S
        elif deadline > time.monotonic() + _GRACE_S:
            deadline = time.monotonic() + _GRACE_S
    if errors:
        raise BenchError(f"measuring failed at {label}:\n  " + "\n  ".join(errors))
    if any(process.poll() is None for process in processes) and not _all_ended(processes):
        raise BenchError(f"measuring processes sent nothing for {_SILENCE_S:.0f} s after {label}")


def _all_ended(processes: Processes) -> bool:
    deadline = time.monotonic() + _GRACE_S
    try:
        for process in processes:
            process.wait(max(deadline - time.monotonic(), 0.01))
    except subprocess.TimeoutExpired:
        return False
    return True


def _check_exits(processes: Processes) -> None:
    for rank, process in enumerate(processes):
        status = process.wait(_GRACE_S)
        if status != 0:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise BenchError(f"measuring process {rank} ended with {how}")
