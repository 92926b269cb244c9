"""Running programs with progress: a line a step, elapsed times, the log's end on a failure."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shlex
import subprocess
import sys
import threading
import time
from typing import Iterator, Mapping, Sequence

from .paths import ROOT, STATE

START = time.monotonic()
HEARTBEAT_S = 15.0
SILENT_S = 1.0  # a step shorter than this is not worth a line
TAIL_LINES = 40
CAUSE = re.compile(r"\berror:|\bERROR\b|^CMake Error|^FAILED")


class Failure(Exception):
    """A step failed; the text says which and what to do."""


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def say(text: str) -> None:
    print(f"[{clock(time.monotonic() - START)}] {text}", flush=True)


def run_quietly(
    title: str, argv: Sequence[object], *, env: Mapping[str, str] | None = None
) -> None:
    """Runs a program with its output in a log; shows that it lives, and its end if it fails."""
    logs = STATE / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / (title.replace(" ", "-") + ".log")
    command = [str(word) for word in argv]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    lines: list[str] = []
    finished = threading.Event()

    def show_life() -> None:
        if finished.wait(SILENT_S):
            return
        say(f"{title} ...")
        while not finished.wait(HEARTBEAT_S):
            last = lines[-1].strip() if lines else ""
            say(f"{title}: {clock(time.monotonic() - began)} {last[:100]}")

    watcher = threading.Thread(target=show_life, daemon=True)
    watcher.start()
    try:
        with log.open("w") as sink:
            sink.write(shlex.join(command) + "\n")
            for line in process.stdout:
                sink.write(line)
                lines.append(line)
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        finished.set()
        watcher.join()
    took = clock(time.monotonic() - began)
    if status != 0:
        show_end(lines)
        raise Failure(f"{title}: failed after {took} with status {status}; whole log: {log}")
    if time.monotonic() - began > SILENT_S:
        say(f"{title}: done in {took}")


def show_end(lines: Sequence[str]) -> None:
    """The last lines, and before them what looks like the cause where that lies further up."""
    end = lines[-TAIL_LINES:]
    causes = [line for line in lines[:-TAIL_LINES] if CAUSE.search(line)]
    sys.stdout.write("".join([*causes[:10], *end]))


def run_visibly(
    title: str,
    argv: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
) -> None:
    """Runs a program whose output the user wants to see."""
    command = [str(word) for word in argv]
    began = time.monotonic()
    say(f"{title}: {shlex.join(command)}")
    status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    took = clock(time.monotonic() - began)
    if status not in ok:
        raise Failure(f"{title}: failed after {took} with status {status}")
    say(f"{title}: done in {took}")


@contextlib.contextmanager
def exclusive(name: str) -> Iterator[None]:
    """One `./dev` at a time changes a workspace; a second one waits and says so."""
    STATE.mkdir(exist_ok=True)
    lock = (STATE / f"{name}.lock").open("w")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another ./dev is setting up or building {name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        lock.close()


class Steps:
    """Runs the steps of a long command to the end of the list, and sums up what failed."""

    def __init__(self) -> None:
        self.results: list[tuple[str, float, str]] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        why = ""
        try:
            yield
        except Failure as failure:
            why = str(failure)
            say(why)
        self.results.append((name, time.monotonic() - began, why))

    def finish(self) -> int:
        width = max(len(name) for name, _, _ in self.results)
        print()
        for name, seconds, why in self.results:
            print(f"  {name:<{width}}  {clock(seconds):>6}  {'FAILED' if why else 'ok'}")
        failed = sum(1 for _, _, why in self.results if why)
        say(f"{failed} of {len(self.results)} steps FAILED" if failed else "all steps passed")
        return 1 if failed else 0
