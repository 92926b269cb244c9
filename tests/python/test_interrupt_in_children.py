"""Signals in a process that was forked: its main thread is the one that forked."""

from __future__ import annotations

import pytest

from tests.harness.ports import free_port
from tests.harness.programs import python

PROGRAM = """
    import os, signal, sys, threading, torch, torchcomms

    class Interrupt(Exception):
        pass

    def handle(_number, _frame):
        raise Interrupt

    def wait_for_nobody():
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            torchcomms.new_comm("gloo", torch.device("cpu"), "alone", timeout=20.0)
        except Interrupt:
            os._exit(7)
        finally:
            os._exit(8)

    def fork():
        child = os.fork()
        if child == 0:
            wait_for_nobody()
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    codes = []
    if sys.argv[1] == "main":
        fork()
    else:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert codes == [7], codes
"""


@pytest.mark.parametrize("forking", ["main", "another"])
def test_a_start_in_a_child_is_interrupted_whichever_thread_forked(forking):
    python(
        PROGRAM,
        forking,
        flags=("-W", "ignore::DeprecationWarning"),  # newer Pythons warn of fork() with threads
        TORCHCOMM_RANK="0",
        TORCHCOMM_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
    ).expect_success()
