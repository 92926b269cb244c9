"""Runs of whole programs: what they print, how they end, how long they take."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from .environment import neutral_environment
from .fork_server import FILE, MODULE, SOURCE, Request
from .forked import Process

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


def forked(
    source: str,
    *arguments: str,
    deadline: float = DEADLINE_S,
    stdin: str = "",
    folder: Path | None = None,
    needs: tuple[str, ...] = (),
    **variables: str,
) -> Finished:
    """As `python`, but with torch, torchcomms and the modules it `needs` imported before."""
    environment = neutral_environment(**variables)
    source, folder = textwrap.dedent(source), folder or Path.cwd()
    request = Request(SOURCE, source, arguments, environment, str(folder), needs)
    return forked_together([request], deadline, stdin)[0]


def module(
    name: str, *arguments: str, folder: Path, deadline: float = DEADLINE_S, **variables: str
) -> Finished:
    """As `python -m name` in `folder`, but with torch and torchcomms imported before."""
    request = Request(MODULE, name, arguments, neutral_environment(**variables), str(folder))
    return forked_together([request], deadline)[0]


def ranks(
    source: str,
    size: int,
    port: int,
    deadline: float = DEADLINE_S,
    fresh: bool = False,
    needs: tuple[str, ...] = (),
    **variables: str,
) -> list[Finished]:
    """Runs `source` once a rank, with a launcher's variables.

    With torch, torchcomms and the modules it `needs` imported before, or in `fresh` interpreters.
    """
    if not fresh:
        return forked_together(requests(source, size, port, needs=needs, **variables), deadline)
    command = [sys.executable, "-c", textwrap.dedent(source)]
    places = [{**_place(rank, size, port), **variables} for rank in range(size)]
    return together([(command, place) for place in places], deadline)


def requests(
    source: str,
    size: int,
    port: int,
    *arguments: str,
    needs: tuple[str, ...] = (),
    **variables: str,
) -> list[Request]:
    """What `ranks` asks for; each can be a Process."""
    return [
        Request(
            SOURCE,
            textwrap.dedent(source),
            arguments,
            neutral_environment(**{**_place(rank, size, port), **variables}),
            os.getcwd(),
            needs,
        )
        for rank in range(size)
    ]


def _place(rank: int, size: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port)}  # fmt: skip


def launched(
    program: Path,
    size: int,
    *arguments: str,
    folder: Path,
    deadline: float = DEADLINE_S,
    needs: tuple[str, ...] = (),
) -> list[Finished]:
    """Runs a file as torchrun would, but with torch, torchcomms and its `needs` imported before.

    The launcher serves the store, and the first rank that fails ends the others.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    places = [
        {**_place(rank, size, store.port), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
         "TORCHELASTIC_USE_AGENT_STORE": "True"} for rank in range(size)
    ]  # fmt: skip
    return forked_together(
        [
            Request(FILE, str(program), arguments, neutral_environment(**place), str(folder), needs)
            for place in places
        ],
        deadline,
        all_or_none=True,
    )


def torchrun(program: Path, size: int, *arguments: str, deadline: float = DEADLINE_S) -> Finished:
    """Runs a file under torchrun itself, on a free port of this host."""
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


def forked_together(
    requests: list[Request], deadline: float, stdin: str = "", all_or_none: bool = False
) -> list[Finished]:
    """As `together`; with `all_or_none` the first that fails ends the others."""
    limit = time.monotonic() + deadline
    running: list[Process] = []
    try:
        running += (Process(request, stdin) for request in requests)
        if all_or_none:
            _until_one_fails(running, limit)
        return [_finished(process, running, limit) for process in running]
    finally:
        for process in running:
            process.close()


def _until_one_fails(running: list[Process], limit: float) -> None:
    left = list(running)
    while left and time.monotonic() < limit:
        select.select(left, [], [], limit - time.monotonic())
        if any(process.wait() for process in left):
            for process in left:
                process.kill()
        left = [process for process in left if process.code is None]


def _finished(process: Process, running: list[Process], limit: float) -> Finished:
    code = process.wait(limit)
    if code is None:
        # The others' words, too: this one may wait for one that has failed.
        reports = "\n".join(_report_of(each, each is process) for each in running)
        raise AssertionError(f"a program did not end:\n{reports}")
    ended = time.monotonic()
    return Finished(code, *process.output(), ended)


def _report_of(process: Process, late: bool) -> str:
    """All that it has said, and how it ended; it has now."""
    code = process.wait(time.monotonic())
    if code is None:
        process.kill()
    how = "did not end" if code is None else f"ended with {code}"
    out, err = process.output()
    return f"--- one {how}{', the first that was late' if late else ''}\n{out}\n{err}"
