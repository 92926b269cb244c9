"""Where the threads of a process are below Python, if a debugger is there to say it."""

from __future__ import annotations

import shutil
import subprocess

DEBUGGERS = ("gdb", "cuda-gdb")
LIMIT_S = 30.0


def native_stacks(pid: int) -> str:
    """For a process that is about to be ended: it is stopped meanwhile, and may not go on."""
    debugger = next(filter(None, map(shutil.which, DEBUGGERS)), None)
    if debugger is None:
        return f"its native stacks are not known: none of {', '.join(DEBUGGERS)} is installed"
    argv = [debugger, "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 24"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"its native stacks are not known: {debugger} took longer than {LIMIT_S:g} s"
    output = done.stdout if done.returncode == 0 else done.stderr
    wanted = ("Thread ", "#", "warning: ", "ptrace")
    return "\n".join(line for line in output.splitlines() if line.startswith(wanted))
