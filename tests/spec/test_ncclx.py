"""Backend ncclx: which collectives are kernels of ours, that they are right, what tells of it."""

from __future__ import annotations

import pytest
import torch
from torchcomms import ReduceOp

from tests.harness.backends import NCCLX
from tests.harness.cases import Failures, assert_alive, check_context
from tests.harness.programs import ranks

pytestmark = pytest.mark.worlds(backends=("ncclx",))
needs_ncclx = pytest.mark.skipif(NCCLX.missing() is not None, reason=str(NCCLX.missing()))

BY_KERNELS = {"ncclx::algorithm": "kernels"}
BY_NCCL = {"ncclx::algorithm": "nccl"}


def launches(comm):
    return int(comm.get_backend_impl().comm_dump()["kernelLaunches"])


def tensor(context, *shape, dtype=torch.float32):
    values = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape) % 50
    return (values + 100 * context.rank).to(dtype).to(context.comm.get_device())


def kernel_calls(context, hints):
    """What each collective that kernels run leaves behind, by name."""
    comm, size = context.comm, context.size
    results = {}
    for count in (1, 3, 1000, 70_001):
        one, all_ranks = tensor(context, count), tensor(context, size * count)
        where = {"device": comm.get_device()}
        results[f"all_reduce {count}"] = one.clone()
        comm.all_reduce(results[f"all_reduce {count}"], ReduceOp.AVG, False, hints=hints)
        results[f"broadcast {count}"] = one.clone()
        comm.broadcast(results[f"broadcast {count}"], size - 1, False, hints=hints)
        results[f"reduce {count}"] = one.clone()
        comm.reduce(results[f"reduce {count}"], 0, ReduceOp.MAX, False, hints=hints)
        gathered = torch.empty(size * count, **where)
        comm.all_gather_single(gathered, one, False, hints=hints)
        results[f"all_gather_single {count}"] = gathered
        scattered = torch.empty(count, **where)
        comm.reduce_scatter_single(scattered, all_ranks, ReduceOp.SUM, False, hints=hints)
        results[f"reduce_scatter_single {count}"] = scattered
        exchanged = all_ranks.clone()
        comm.all_to_all_single(exchanged, exchanged, True, hints=hints).wait()
        results[f"all_to_all_single {count}"] = exchanged
        into = torch.zeros(size * count, **where)
        comm.gather_single(into, one, 1, False, hints=hints)
        results[f"gather_single {count}"] = into
        comm.barrier(False, hints=hints)
    return results


def same_as_nccl(context):
    failures = Failures()
    before = launches(context.comm)
    kernels = kernel_calls(context, BY_KERNELS)
    with failures.case("all are kernels"):
        assert launches(context.comm) - before == 4 * 8
    before = launches(context.comm)
    library = kernel_calls(context, BY_NCCL)
    with failures.case("none is"):
        assert launches(context.comm) == before
    for name, result in kernels.items():
        if name.startswith("reduce ") and context.rank != 0:
            continue  # undefined but on the root
        with failures.case(name):
            torch.testing.assert_close(result, library[name], rtol=0, atol=0)
    return failures.texts


def test_kernels_give_what_the_library_gives(world):
    check_context(world, same_as_nccl)


def premultiplied(context):
    failures, comm = Failures(), context.comm
    for factor in (0.5, torch.tensor(0.5)):
        before = launches(comm)
        values = tensor(context, 10)
        op = ReduceOp.PREMUL_SUM(factor)
        comm.all_reduce(values, op, False)
        with failures.case(factor):
            want = sum((torch.arange(10) + 100 * rank) * 0.5 for rank in range(context.size))
            torch.testing.assert_close(values, want, check_dtype=False)
            assert launches(comm) - before == 1
    return failures.texts


def test_a_factor_is_the_kernels_as_a_number_and_as_an_element(world):
    check_context(world, premultiplied)


def described(context):
    failures, comm = Failures(), context.comm
    about = comm.describe()
    with failures.case("links"):
        assert about["links"][context.rank] == "self"
        assert set(about["links"]) == {"self", "kernels over mapped memory, and nccl"}
    with failures.case("algorithms"):
        rows = about["algorithms"]["all_reduce"]
        assert (rows[0]["bytes_from"], rows[0]["algorithm"]) == (0, "one_shot_ll")
        assert (rows[-1]["algorithm"], rows[-1]["why"]) == ("nccl", "table")
    dump = comm.get_backend_impl().comm_dump()
    with failures.case("dump"):
        assert (dump["rank"], dump["nRanks"]) == (str(context.rank), str(context.size))
        assert len(dump["commHash"]) == 16
    with failures.case("all dumps"):
        from torchcomms import _comms_ncclx

        everything = _comms_ncclx.comm_dump_all()
        assert everything[dump["commHash"]]["commName"] == comm.get_name()
        assert int(everything["GlobalInfo"]["communicators"]) == len(everything) - 1
        some = _comms_ncclx.comm_dump_all({"comm_dump::requestFields": "rank"})
        assert some[dump["commHash"]] == {"rank": str(context.rank)}
        assert some["GlobalInfo"] == {}
    return failures.texts


def test_describe_and_dumps_tell_who_runs_what(world):
    check_context(world, described)


def configured(context):
    failures, comm = Failures(), context.comm
    impl = comm.get_backend_impl()
    before = launches(comm)
    impl.set_config({"allreduceAlgo": "orig"})
    comm.all_reduce(tensor(context, 5), ReduceOp.SUM, False)
    with failures.case("by the library"):
        assert launches(comm) == before
    impl.set_config({"allreduceAlgo": "auto"})
    comm.all_reduce(tensor(context, 5), ReduceOp.SUM, False)
    with failures.case("by a kernel"):
        assert launches(comm) == before + 1
    with failures.case("unknown key"), pytest.raises(RuntimeError, match="cannot be changed"):
        impl.set_config({"nChannels": "2"})
    with failures.case("unknown value"), pytest.raises(ValueError, match="one_shot_ll"):
        impl.set_config({"allreduceAlgo": "best"})
    with failures.case("unknown hint"), pytest.raises(ValueError, match="one_shot_ll"):
        comm.all_reduce(tensor(context, 5), ReduceOp.SUM, False, hints={"ncclx::algorithm": "best"})
    assert_alive(comm)
    return failures.texts


def test_set_config_and_hints_choose(world):
    check_context(world, configured)


def hinted(context):
    failures = Failures()
    for reserved in ("ncclx::commDesc", "ncclx::splitGroupRanks"):
        with failures.case(reserved), pytest.raises(ValueError, match=reserved):
            context.new_comm("reserved", hints={reserved: "x"})
    with failures.case("forwarded"), pytest.raises(ValueError, match="minCTAs='many'"):
        context.new_comm("forwarded", hints={"ncclx::minCTAs": "many"})
    with failures.case("older spelling"), pytest.raises(RuntimeError, match="perhaps"):
        context.new_comm("older", hints={"torchcomm::ncclx::high_priority_stream": "perhaps"})
    comm = context.new_comm(
        "hinted",
        hints={
            "torchcomm::ncclx::high_priority_stream": "true",
            "ncclx::minCTAs": "2",
            "ncclx::maxCTAs": "4",  # without it the library refuses the other one
            "lazySetupChannels": "1",
            "fastInitMode": "ring_hybrid",
            "garbage_collect_interval_ms": "50",
        },
    )
    child = comm.split(list(range(context.size)), "half")
    with failures.case("child"):
        assert child.get_name() == f"{comm.get_name()}::split::0_half_0"
        assert_alive(child)
        assert launches(child) > 0
    child.finalize()
    comm.finalize()
    return failures.texts


def test_hints_of_the_contract(world):
    check_context(world, hinted)


DIES = """
    import os, signal, torch, torchcomms

    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), "dies",
                               abort_process_on_timeout_or_error=False)
    comm.barrier(False)
    assert comm.get_backend_impl().comm_dump()["kernelLaunches"] == "1"
    if comm.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(torch.ones(10), torchcomms.ReduceOp.SUM, False)
    except torchcomms.PeerFailed as error:
        assert error.peer == 1, error
    else:
        raise AssertionError("it did not wait for rank 1")
    assert comm.is_aborted()
    comm.finalize()
"""


@needs_ncclx
def test_the_death_of_a_process_ends_a_kernel_that_waits_for_it(free_port):
    first, _ = ranks(DIES, 2, free_port, **NCCLX.environment)
    first.expect_success()


@needs_ncclx
def test_without_kernels_it_is_nccl_alone_and_says_why(free_port):
    program = """
        import os, torch, torchcomms

        if os.environ["RANK"] == "1":
            os.environ["TORCHCOMM_KERNELS_LIBRARY"] = "/no/such/library.so"
        comm = torchcomms.new_comm("ncclx", torch.device("cpu"), "alone")
        values = torch.ones(10)
        comm.all_reduce(values, torchcomms.ReduceOp.SUM, False)
        assert values[0] == 2
        why = comm.describe()["links"][1 - comm.get_rank()]
        assert "nccl alone (rank 1: no library of kernels: /no/such/library.so" in why, why
        comm.finalize()
    """
    for rank in ranks(program, 2, free_port, **NCCLX.environment):
        rank.expect_success()
