"""The GIL is free while a call blocks.

Each test blocks one rank inside a call while a second Python thread of that rank counts to the
end of its time and then tells the other rank, through the store, to let the call finish. With
the GIL held the thread stops counting, and the other rank gives up waiting for it.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torch

from tests.harness.backends import NCCL
from tests.harness.cases import assert_alive
from tests.harness.programs import forked

pytestmark = pytest.mark.worlds(sizes=(2,))

COUNTING_S = 0.3
PATIENCE = timedelta(seconds=20)


def recv(context):
    context.comm.recv(torch.zeros(1), 1, False)


def work_wait(context):
    context.comm.recv(torch.zeros(1), 1, True).wait()


def barrier(context):
    context.comm.barrier(False)


def batch(context):
    batch = context.comm.batch_op_create()
    batch.recv(torch.zeros(1), 1)
    batch.issue(False)


def new_comm(context):
    context.new_comm().finalize()


def split(context):
    context.comm.split([0, 1], "gil").finalize()


def send(context):
    context.comm.send(torch.zeros(1), 0, False)


# What rank 0 does, and what rank 1 does to let it finish.
BLOCKING = {
    "recv": (recv, send), "wait": (work_wait, send), "barrier": (barrier, barrier),
    "batch": (batch, send), "new_comm": (new_comm, new_comm), "split": (split, split),
}  # fmt: skip


def block_and_count(context, name):
    blocked, release = BLOCKING[name]
    context.comm.barrier(False)
    store = context.store(f"gil/{name}", own_connection=True)
    if context.rank == 1:
        try:
            store.wait(["counted"], PATIENCE)
            counted = True
        except Exception:  # the counting thread never got the GIL
            counted = False
        release(context)
        return counted

    def count():
        end = time.monotonic() + COUNTING_S
        numbers = 0
        while time.monotonic() < end:
            numbers += 1
        store.set("counted", str(numbers))

    thread = threading.Thread(target=count)
    thread.start()
    blocked(context)
    thread.join()
    return True


@pytest.mark.parametrize("name", BLOCKING)
def test_another_thread_runs_while_the_call_blocks(world, name):
    assert world.run_context(block_and_count, name) == [True, True]
    world.run(assert_alive)


@pytest.mark.skipif(NCCL.missing() is not None, reason=str(NCCL.missing()))
def test_another_thread_runs_while_a_library_registers_memory():
    """Its call returns when that thread says so; one that never does ends the program."""
    forked(
        """
        import ctypes, faulthandler, os, threading, time, torch, torchcomms

        faulthandler.dump_traceback_later(30, exit=True)
        plan = ctypes.CDLL(os.environ["TORCHCOMM_NCCL_LIBRARY"]).torchcomms_standin_plan

        def while_another_thread_runs(hanging, call):
            def count():
                end = time.monotonic() + 0.3
                while time.monotonic() < end:
                    pass
                assert plan(b"") == 0

            assert plan(hanging) == 0
            thread = threading.Thread(target=count)
            thread.start()
            result = call()
            thread.join()
            return result

        store = torch.distributed.HashStore()
        comm = torchcomms.new_comm("nccl", torch.device("cpu"), "gil", store=store)
        output = torch.zeros(3)
        handle = while_another_thread_runs(
            b"hang=CommRegister:1", lambda: comm.all_gather_p_init(output)
        )
        comm.all_gather_p_exec(handle, torch.ones(3), False)
        assert output.tolist() == [1, 1, 1]
        while_another_thread_runs(
            b"hang=CommDeregister:1", lambda: comm.all_gather_p_free(handle)
        )
        comm.finalize()
        """,
        TORCHCOMM_RANK="0",
        TORCHCOMM_SIZE="1",
        **NCCL.environment,
    ).expect_success()
