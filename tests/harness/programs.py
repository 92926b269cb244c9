"""Runs of whole programs: what they print, how they end, how long they take."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from .environment import is_foreign

DEADLINE_S = 120.0


@dataclass(frozen=True)
class Finished:
    """A program that ended by itself."""

    code: int
    out: str
    err: str
    ended: float  # time.monotonic() right after its end; comparable with what it printed itself

    def expect_success(self) -> Finished:
        """This, or an AssertionError with everything the program printed."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


def python(
    source: str,
    *arguments: str,
    deadline: float = DEADLINE_S,
    flags: tuple[str, ...] = (),
    **variables: str,
) -> Finished:
    """Runs `source` as `python -c`, with `variables` added to a neutral environment."""
    command = [sys.executable, *flags, "-c", textwrap.dedent(source), *arguments]
    return together([(command, variables)], deadline)[0]


def ranks(
    source: str, size: int, port: int, deadline: float = DEADLINE_S, **variables: str
) -> list[Finished]:
    """Runs `source` once a rank, with a launcher's variables."""
    command = [sys.executable, "-c", textwrap.dedent(source)]
    return together([
        (command, {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), **variables}) for rank in range(size)
    ], deadline)  # fmt: skip


def torchrun(program: Path, size: int, *arguments: str, deadline: float = DEADLINE_S) -> Finished:
    """Runs a file under torchrun on a free port of this host."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(size),
        str(program),
        *arguments,
    ]
    return together([(command, {})], deadline)[0]


def together(commands: list[tuple[list[str], dict[str, str]]], deadline: float) -> list[Finished]:
    """Starts all commands, then collects them; whoever outlives the deadline is killed."""
    limit = time.monotonic() + deadline
    running = [
        subprocess.Popen(
            command,
            env=neutral_environment(**variables),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for command, variables in commands
    ]
    try:
        return [_collect(process, limit) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()


def _collect(process: subprocess.Popen[str], limit: float) -> Finished:
    try:
        out, err = process.communicate(timeout=max(0.1, limit - time.monotonic()))
    except subprocess.TimeoutExpired as late:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the program did not end:\n{out}\n{err}") from late
    return Finished(process.returncode, out, err, time.monotonic())


def neutral_environment(**variables: str) -> dict[str, str]:
    """Our environment without a job's or a test's settings; one computing thread."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not is_foreign(name) and not name.startswith(("PYTHON", "PYTEST"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", **variables}
