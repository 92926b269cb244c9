"""What a TorchWork promises."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torchcomms import ReduceOp, TorchWork, WorkStatus

from tests.harness.cases import Failures, check_context, finish, on_host, refused
from tests.harness.operations import call, operations_for

anywhere = pytest.mark.worlds(data=False)


def returned(context, async_op):
    """send is started before recv; a synchronous send needs the receiver, so p2p stays async."""
    failures, works = Failures(), []
    for name in operations_for(context):
        mode = async_op or (name in ("send", "recv") and context.size > 1)
        with failures.case(name):
            work = call(context.comm, name, mode)
            assert isinstance(work, TorchWork), f"returned {work!r}"
            works.append((name, mode, work))
    for name, mode, work in works:
        with failures.case(name):
            if not mode:
                if on_host():
                    assert work.is_completed(), "a finished operation's work is not complete"
                work.wait_blocking()
                work.wait_blocking()
                assert work.is_completed(), "not complete after wait_blocking()"
            assert work.wait() is None
            finish(work, mode)
    return failures.texts


@anywhere
@pytest.mark.parametrize("async_op", [False, True], ids=["sync", "async"])
def test_every_operation_returns_a_work_that_can_be_waited_for_twice(world, async_op):
    check_context(world, returned, async_op)


def host_wait(context):
    failures = Failures()
    work = context.comm.all_reduce(torch.ones(2), ReduceOp.SUM, True)
    if context.row.host_waits_for_async:
        work.wait_blocking()
        return []
    for moment in ("before wait()", "after wait()"):
        with failures.case(moment), refused(RuntimeError, "waitBlocking not implemented"):
            work.wait_blocking()
        work.wait()
    return failures.texts


@anywhere
def test_wait_blocking_of_an_async_work_follows_the_backends_rule(world):
    check_context(world, host_wait)


def surplus_arguments(context):
    work = context.comm.barrier(True)
    failures = Failures()
    with failures.case("argument"), refused(TypeError):
        work.wait(1.0)
    with failures.case("keyword"), refused(TypeError):
        work.wait(timeout=None)
    work.wait()
    with failures.case("_set_status"), refused(RuntimeError):
        work._set_status(WorkStatus.COMPLETED)
    with failures.case("constructor"), refused(TypeError):
        TorchWork()
    return failures.texts


@anywhere
def test_wait_takes_no_arguments_and_the_status_belongs_to_the_backend(world):
    check_context(world, surplus_arguments)


def truthy(context):
    failures = Failures()
    for value in (1, 0, None, "yes", [], [1], 2.5):
        with failures.case(repr(value)):
            work = context.comm.all_reduce(torch.ones(2), ReduceOp.SUM, value)
            finish(work, value)
    return failures.texts


@anywhere
def test_async_op_is_anything_with_a_truth_value(world):
    check_context(world, truthy)


def release(context):
    """Once the work is gone nothing keeps the tensors; a backend's thread may still be leaving."""
    tensor = torch.ones(1000)
    work = context.comm.all_reduce(tensor, ReduceOp.SUM, True)
    work.wait()
    context.comm.barrier(False)
    gone = threading.Event()
    weakref.finalize(tensor.untyped_storage(), gone.set)
    del tensor, work
    gc.collect()
    return [] if gone.wait(timeout=20) else ["the storage is still alive"]


@anywhere
def test_a_finished_work_lets_its_tensors_go(world):
    check_context(world, release)


def wait_elsewhere(context):
    """The thread that waits may be another one than the one that called."""
    tensor = torch.ones(10)
    work = context.comm.all_reduce(tensor, ReduceOp.SUM, True)
    errors = []

    def wait():
        try:
            work.wait()
        except BaseException as error:
            errors.append(repr(error))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    if context.row.moves_data and tensor.tolist() != [float(context.size)] * 10:
        errors.append(f"{tensor.tolist()}")
    return errors


@anywhere
def test_another_thread_may_wait(world):
    check_context(world, wait_elsewhere)
