"""The practical check: processes that make a communicator of each backend and run an all_reduce."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch.distributed import TCPStore

from torchcomms.doctor.backends import Backend
from torchcomms.doctor.report import Section

_RANKS = 2
_DESCRIPTORS = 24  # the file descriptors of a store and of the pipes to its ranks
_TIMES = ("import_s", "connect_ms", "all_reduce_us")
# On all devices of this host; the other backends would only repeat that.
_ON_ALL = ("nccl", "rccl", "xccl")
# Timeout to connect to the store in this process, however short the timeout of the check.
_OWN_STORE = timedelta(seconds=60)
# The check makes a job of its own: its processes must not inherit the variables of this job.
_FOREIGN = ("TORCHCOMM_RANK", "TORCHCOMM_SIZE", "TORCHCOMM_BOOTSTRAP_", "OMPI_", "PMI_", "PALS_")


@dataclass
class _Rank:
    backend: Backend
    rank: int
    process: subprocess.Popen[str]
    phase: str = "importing torch and torchcomms"
    error: str = ""
    result: dict[str, float] | None = None


class Exchanges:
    """Checks several backends in parallel. The constructor starts the processes, `finish()` judges.

    No process outlives `finish()` or `close()`.
    """

    def __init__(self, backends: Sequence[Backend], limit_s: float) -> None:
        self._deadline = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._ranks: list[_Rank] = []
        self._stores: list[TCPStore] = []
        self._not_begun: dict[str, str] = {}  # the reason, by backend
        for backend in backends:
            ranks: list[_Rank] = []
            try:
                _require_descriptors()
                store = TCPStore(
                    "127.0.0.1", 0, is_master=True, wait_for_workers=False,
                    timeout=_OWN_STORE,
                )  # fmt: skip
                for rank in range(_size(backend)):
                    ranks.append(_Rank(backend, rank, self._start(backend, rank, store.port)))
            # No file descriptor, process or memory is left.
            except (OSError, RuntimeError) as error:
                why = error.strerror if isinstance(error, OSError) else None
                self._not_begun[backend.name] = why or str(error).splitlines()[0]
                for begun in ranks:
                    _end(begun.process)
                continue
            self._stores.append(store)
            self._ranks += ranks

    def _start(self, backend: Backend, rank: int, port: int) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        environment.update(
            OMP_NUM_THREADS="1",
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(_size(backend)),
            LOCAL_WORLD_SIZE=str(_size(backend)),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            TORCHELASTIC_USE_AGENT_STORE="True",  # ranks connect to the store of this process
        )
        arguments = [backend.name, backend.device, str(self._limit_s), str(time.monotonic())]
        return subprocess.Popen(
            [sys.executable, "-m", "torchcomms.doctor.exchange_worker", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self) -> Section:
        """Waits until all ranks are done or the timeout is over, and returns the findings."""
        section = Section("exchanges", "One all_reduce per backend")
        for rank in self._ranks:
            _collect(rank, self._deadline)
        self.close()
        for name, why in self._not_begun.items():
            section.rows.append(_row(name, 0, correct=False))
            section.problem(
                name,
                f"the check could not start: {why}",
                "end other programs, or raise the limits of this process (ulimit -n, ulimit -u)",
            )
        for name in dict.fromkeys(rank.backend.name for rank in self._ranks):
            self._judge(section, [rank for rank in self._ranks if rank.backend.name == name])
        return section

    def close(self) -> None:
        """Kills the processes that still run."""
        for rank in self._ranks:
            _end(rank.process)

    def _judge(self, section: Section, ranks: list[_Rank]) -> None:
        name = ranks[0].backend.name
        results = [rank.result for rank in ranks if rank.result is not None]
        good = len(results) == len(ranks)
        row = _row(name, len(ranks), correct=good)
        if good:
            for key in _TIMES:
                row[key] = round(max(result[key] for result in results), 1)
        section.rows.append(row)
        if good:
            where = f"{len(ranks)} process{'es' if len(ranks) > 1 else ''}"
            section.ok(name, f"all_reduce on {where} is correct")
            return
        for rank in ranks:
            if rank.error:
                section.problem(
                    name,
                    f"rank {rank.rank} of the check failed in {rank.phase}: {rank.error}",
                    "correct what the error names; the other findings may give the reason",
                )
            elif rank.result is None:
                section.problem(
                    name,
                    f"rank {rank.rank} of the check was still in {rank.phase} "
                    f"after {self._limit_s:g} s",
                    "end other programs and try again with a larger --timeout",
                )


def _require_descriptors() -> None:
    """Raises OSError if too few descriptors are left: a TCPStore might abort the process then."""
    with contextlib.ExitStack() as taken:
        for _ in range(_DESCRIPTORS):
            taken.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def _row(name: str, ranks: int, *, correct: bool) -> dict[str, object]:
    return {"backend": name, "ranks": ranks, "correct": correct, **dict.fromkeys(_TIMES)}


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def _size(backend: Backend) -> int:
    if backend.name == "fake":
        return 1  # fake supports no other size
    if backend.device == "cpu":
        return _RANKS
    count = torch.accelerator.device_count()
    return count if backend.name in _ON_ALL else min(_RANKS, count)


def _collect(rank: _Rank, deadline: float) -> None:
    """Reads the output of the process until the deadline, then kills the process."""
    process, expired = rank.process, False
    try:
        out, err = process.communicate(timeout=max(deadline - time.monotonic(), 0.01))
    except subprocess.TimeoutExpired:
        expired = True
        process.kill()
        out, err = process.communicate()
    for line in out.splitlines():
        if line.startswith("phase "):
            rank.phase = line.removeprefix("phase ")
        elif line.startswith("result "):
            rank.result = json.loads(line.removeprefix("result "))
        elif line.startswith("error "):
            rank.error = json.loads(line.removeprefix("error "))
    if rank.result is None and not rank.error and not expired:
        status = process.returncode
        how = f"exit status {status}" if status >= 0 else f"signal {-status}"
        rank.error = ": ".join([how, *err.strip().splitlines()[-1:]])
