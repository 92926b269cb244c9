"""What only backend `ctran` has: a choice of links and algorithms, and ends that all ranks see."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp, algorithms

from tests.harness.cases import Failures, assert_alive, check_context, refused

ctran = pytest.mark.worlds(backends=("ctran",))
several = pytest.mark.worlds(backends=("ctran",), sizes=(2, 3))
SOON_S = 10.0


def summed(comm, numel=1000, **options):
    """Whether an all_reduce of known numbers gives their sum."""
    rank, size = comm.get_rank(), comm.get_size()
    tensor = torch.arange(numel, dtype=torch.int64) + rank
    comm.all_reduce(tensor, ReduceOp.SUM, False, **options)
    return bool((tensor == torch.arange(numel) * size + size * (size - 1) // 2).all())


def described(context):
    failures, about = Failures(), context.comm.describe()
    with failures.case("links"):
        link = dict(context.row.hints).get("ctran::transport", "shm")
        assert about["links"] == ["self" if r == context.rank else link
                                  for r in range(context.size)]  # fmt: skip
    with failures.case("algorithms"):
        ranges = about["algorithms"]["all_reduce"]
        assert ranges[0]["bytes_from"] == 0
        assert [r["bytes_from"] for r in ranges] == sorted({r["bytes_from"] for r in ranges})
        names = {row["name"] for row in algorithms.catalogue("all_reduce")}
        assert {r["algorithm"] for r in ranges} <= names
        assert set(about["algorithms"]) > {"barrier", "all_to_all_v_single", "gather_single"}
        assert "send" not in about["algorithms"]
    with failures.case("carriers"):
        others = context.size - 1
        expected = f"{link} to {others} peer{'s' * (others > 1)}" if others else "no peers"
        assert about["notes"]["links"].startswith(expected)
    with failures.case("waits"):
        assert about["notes"]["waits"].startswith(("spin first (", "yield first ("))
    with failures.case("phases"):
        phases = [phase["name"] for phase in about["init"]["phases"]]
        assert phases[-3:] == ["exchange", "open links", "connect"]
    return failures.texts


@ctran
def test_describe_names_links_and_algorithms(world):
    check_context(world, described)


def every_algorithm(context):
    """Each algorithm gives the result, asked for by the communicator or by the call."""
    failures = Failures()
    for row in algorithms.catalogue("all_reduce"):
        name = row["name"]
        for numel in (0, 1, 1000):
            with failures.case(name, numel, "call"):
                assert summed(context.comm, numel, hints={"ctran::algorithm": name})
        with failures.case(name, "chunk"):
            hints = {"ctran::algorithm": f"all_reduce:{name}", "ctran::chunk_bytes": "64"}
            assert summed(context.comm, hints=hints)
    return failures.texts


@ctran
def test_every_algorithm_can_be_asked_for(world):
    check_context(world, every_algorithm)


def chunked_reductions(context):
    """Chunks follow each other through the same scratch memory."""
    failures = Failures()
    rank, size = context.rank, context.size
    inputs = [torch.arange(40_000) * (r + 1) % 1000 for r in range(size)]
    want = torch.stack(inputs).sum(0)
    for name in [row["name"] for row in algorithms.catalogue("reduce")]:
        hints = {"ctran::algorithm": name, "ctran::chunk_bytes": "16384"}
        for turn in range(10):
            root, tensor = turn % size, inputs[rank].clone()
            context.comm.reduce(tensor, root, ReduceOp.SUM, False, hints=hints)
            if rank == root:
                with failures.case(name, turn):
                    assert torch.equal(tensor, want)
    return failures.texts


@ctran
def test_chunks_do_not_overtake_each_other(world):
    check_context(world, chunked_reductions)


def listed_again(context):
    """The output is this rank's input, and another rank's as well."""
    failures, comm = Failures(), context.comm
    rank, size = context.rank, context.size
    for reduce_scatter in (comm.reduce_scatter, comm.reduce_scatter_v):
        for numel in (1, 5000, 100_000):
            for turn in range(20):
                tensor = torch.full((numel,), float(rank + 1))
                reduce_scatter(tensor, [tensor] * size, ReduceOp.SUM, False)
                with failures.case(reduce_scatter.__name__, numel, turn):
                    assert (tensor == size * (size + 1) / 2).all(), tensor
    return failures.texts


@several
def test_a_tensor_that_is_listed_for_several_ranks_may_be_the_output(world):
    check_context(world, listed_again)


def hints_of_communicator(context):
    failures = Failures()
    comm = context.new_comm(hints={**dict(context.row.hints), "ctran::algorithm":
                                   "all_reduce:ring,broadcast:chain"})  # fmt: skip
    shown = comm.describe()["algorithms"]
    with failures.case("those named"):
        assert {r["algorithm"] for r in shown["all_reduce"]} == {"ring"}
        assert {r["why"] for r in shown["all_reduce"]} == {"wished"}
        assert {r["algorithm"] for r in shown["broadcast"]} == {"chain"}
        assert summed(comm)
    with failures.case("not the others"):
        assert {r["why"] for r in shown["reduce"]} & {"wished"} == set()
    with failures.case("set_hints"):
        comm.set_hints({"ctran::algorithm": "all_reduce:tree", "ctran::chunk_bytes": "128"})
        shown = comm.describe()["algorithms"]["all_reduce"]
        assert {r["algorithm"] for r in shown} == {"tree"}
        assert {r["chunk_bytes"] for r in shown} == {128}
        assert summed(comm)
    comm.finalize()
    return failures.texts


@several
def test_hints_of_the_communicator_and_set_hints_choose(world):
    check_context(world, hints_of_communicator)


def wrong_hints(context):
    """Refused before anything is sent, naming hint, value and what is allowed."""
    failures, comm = Failures(), context.comm
    for key, value, allowed in (
        ("ctran::algorithm", "star", "one_shot, two_shot"),
        ("ctran::algorithm", "all_redduce:ring", "operations: all_reduce"),
        ("ctran::algorithm", "broadcast:ring", "direct, tree"),
        ("ctran::algorithm", "ring,", "''"),
        ("ctran::chunk_bytes", "-1", "whole number of bytes"),
        ("ctran::chunk_bytes", "64K", "whole number of bytes"),
    ):
        with failures.case(key, value, "call"), refused(ValueError, "all_reduce", key, allowed):
            summed(comm, hints={key: value})
        with failures.case(key, value, "set_hints"), refused(ValueError, key):
            comm.set_hints({key: value})
    assert_alive(comm)
    if context.rank == 0:  # alone: it must not wait for anybody
        for key, value in (
            ("ctran::transport", "pigeon"),
            ("ctran::chunk_bytes", "x"),
            ("ctran::single_copy", "once"),
        ):
            with failures.case(key, value, "new_comm"), refused(ValueError, "new_comm", key, value):
                context.new_comm(hints={key: value})
            context._comm_count -= 1
    return failures.texts


@ctran
def test_a_wrong_hint_is_refused_naming_it(world):
    check_context(world, wrong_hints)


def about_another(context):
    tensor = torch.ones(4)
    hints = {"ctran::algorithm": "reduce:ring"}
    context.comm.all_reduce(tensor, ReduceOp.SUM, False, hints=hints)
    return tensor.tolist()


@several
def test_a_hint_about_another_operation_changes_nothing(world):
    assert world.run_context(about_another) == [[float(world.size)] * 4] * world.size


def aborted_by_another_thread(context):
    """A waiting call ends within a moment, and every later one raises the same type."""
    failures, comm, fired = Failures(), context.new_comm(), []
    comm.barrier(False)
    context.comm.barrier(False)  # all have left the one before
    comm.register_abort_hook(lambda: fired.append(1))
    if context.rank == 0:
        work = comm.recv(torch.zeros(1), 1, True)
        thread = threading.Thread(target=comm.abort)
        began = time.monotonic()
        thread.start()
        with failures.case("work"), refused(torchcomms.Aborted, "recv"):
            work.wait()
        thread.join()
        assert time.monotonic() - began < SOON_S
        with failures.case("state"):
            assert comm.is_aborted() is True
            assert fired == [1]
        with failures.case("later"):
            with pytest.raises(torchcomms.Aborted) as caught:
                comm.barrier(False)
            assert caught.value.why == "abort() was called"
    else:  # the others hear of it
        with failures.case("others"), refused(torchcomms.PeerFailed, "rank 0"):
            comm.recv(torch.zeros(1), 0, False, timeout=30.0)
    assert_alive(context.comm)
    comm.finalize()
    assert comm.is_aborted() is True
    return failures.texts


@several
def test_abort_ends_what_waits_here_and_there_and_nothing_else(world):
    check_context(world, aborted_by_another_thread)


def mismatched(context):
    """Every rank raises, naming what was called; nobody hangs."""
    failures, comm = Failures(), context.new_comm()
    comm.barrier(False)
    began = time.monotonic()
    with failures.case("count"), refused(torchcomms.Mismatch, "all_reduce"):
        comm.all_reduce(torch.ones(3 if context.rank else 4), ReduceOp.SUM, False, timeout=30.0)
    assert time.monotonic() - began < SOON_S
    context.meet(f"mismatched/{comm.get_name()}")
    comm.finalize()
    return failures.texts


@several
def test_ranks_that_disagree_are_told_at_once(world):
    check_context(world, mismatched)


def scaled_by_some(context):
    """Factors for each element are no SUM, also to ranks that compare what they call."""
    failures, comm = Failures(), context.new_comm()
    comm.barrier(False)
    odd = context.size - 1
    is_odd = context.rank == odd
    op = ReduceOp.PREMUL_SUM(torch.tensor([1.0, 2.0, 3.0])) if is_odd else ReduceOp.SUM
    said = (f"rank {odd} calls", "PREMUL_SUM", "SUM)")
    with failures.case("all_reduce"), refused(torchcomms.Mismatch, *said):
        comm.all_reduce(torch.ones(3), op, False, timeout=30.0)
    context.meet(f"scaled/{comm.get_name()}")
    comm.finalize()
    return failures.texts


@several
def test_factors_for_each_element_and_a_plain_sum_disagree(world):
    check_context(world, scaled_by_some)


def checked(context):
    """With `check_calls` nobody gets a result of a call that differs; others are as ever."""
    failures, odd = Failures(), context.size - 1
    hints = {**dict(context.row.hints), "check_calls": "true"}
    comm = context.new_comm(hints=hints)
    with failures.case("alike"):
        assert comm.describe()["notes"]["calls"] == "compared before they begin"
        assert "calls" not in context.comm.describe()["notes"]
        assert summed(comm)
        several = [torch.full((5,), float(i)) for i in range(4)]
        works = [comm.all_reduce(one, ReduceOp.SUM, True) for one in several]
        for work in works:
            work.wait()
        assert [float(one[4]) for one in several] == [float(i * comm.get_size()) for i in range(4)]
        part = comm.split(list(range(comm.get_size())), "part")
        assert summed(part)
    for async_op in (False, True):
        for what in ("root", "reduction", "count", "algorithm"):
            differing = (
                comm if (what, async_op) == ("root", False) else context.new_comm(hints=hints)
            )
            tensor = torch.full((96,), float(context.rank + 1))
            is_odd = context.rank == odd
            began = time.monotonic()
            with (
                failures.case(f"{what}, {async_op=}"),
                refused(torchcomms.Mismatch, f"rank {odd} calls"),
            ):
                if what == "root":
                    work = differing.broadcast(tensor, int(is_odd), async_op)
                elif what == "count":
                    work = differing.all_reduce(tensor[int(is_odd) :], ReduceOp.SUM, async_op)
                elif what == "algorithm":
                    wished = {"ctran::algorithm": "ring"} if is_odd else {}
                    work = differing.all_reduce(tensor, ReduceOp.SUM, async_op, hints=wished)
                else:
                    op = ReduceOp.MAX if is_odd else ReduceOp.SUM
                    work = differing.all_reduce(tensor, op, async_op)
                work.wait()
            assert time.monotonic() - began < SOON_S
            with failures.case(f"nothing has moved, {what}, {async_op=}"):
                assert float(tensor[0]) == float(tensor[95]) == context.rank + 1
            differing.finalize()
    with failures.case("a split does as its parent"), refused(torchcomms.Mismatch, f"rank {odd} "):
        part.broadcast(torch.ones(4), int(context.rank == odd), False)
    part.finalize()
    unlike = context.new_comm(hints=hints if context.rank else {})
    with (
        failures.case("not set on all ranks"),
        refused(torchcomms.Mismatch, "check_calls is not the same on all ranks"),
    ):
        unlike.barrier(False)
    unlike.finalize()
    return failures.texts


@several
def test_checked_calls_that_differ_are_refused_before_anything_moves(world):
    check_context(world, checked)


def met_another(context):
    """The receiver says in what the sender's message differs, and in nothing else."""
    failures = Failures()
    for sent, said in (
        (torch.ones(5), "a receive of 16 bytes matches a send of 20 bytes"),
        (torch.ones(4, dtype=torch.int32), "a receive of 16 bytes matches a send of another dtype"),
    ):
        comm = context.new_comm()
        comm.barrier(False)
        if context.rank == 1:
            with failures.case(said), refused(torchcomms.Mismatch, f"{said};"):
                comm.recv(torch.zeros(4), 0, False, timeout=30.0)
        elif context.rank == 0:
            comm.send(sent, 1, False, timeout=30.0)
        context.meet(f"met another/{comm.get_name()}")
        comm.finalize()
    return failures.texts


@several
def test_a_message_that_does_not_fit_says_why(world):
    check_context(world, met_another)


def concurrent(context):
    """Two communicators used by two threads, in opposite orders on different ranks."""
    one, two = context.new_comm(), context.new_comm()
    results = {}

    def work(name, comm):
        results[name] = all(summed(comm, 5000) for _ in range(50))

    pairs = [("one", one), ("two", two)]
    if context.rank % 2:
        pairs.reverse()
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one.finalize()
    two.finalize()
    return results


@several
def test_two_threads_may_use_two_communicators(world):
    assert world.run_context(concurrent) == [{"one": True, "two": True}] * world.size
