"""The backends over vendors' libraries: what is theirs, on a library for host memory."""

from __future__ import annotations

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.backends import NCCL
from tests.harness.cases import Failures, assert_alive, check_context, refused
from tests.harness.environment import environment
from tests.harness.operations import call, operations_for
from tests.harness.programs import forked

CLASSES = {
    "nccl": "TorchCommNCCL",
    "ncclx": "TorchCommNCCLX",
    "rccl": "TorchCommRCCL",
    "rcclx": "TorchCommRCCLX",
    "xccl": "TorchCommXCCL",
}
vendors = pytest.mark.worlds(backends=tuple(CLASSES))


def good_calls(context):
    failures = Failures()
    for name in operations_for(context):
        for async_op in (False, True):
            with failures.case(name, async_op):
                call(context.comm, name, async_op).wait()
    return failures.texts


@vendors
def test_every_operation_works_on_every_vendors_row(world):
    check_context(world, good_calls)


def described(context):
    failures, comm = Failures(), context.comm
    impl = comm.get_backend_impl()
    with failures.case("class"):
        assert type(impl).__name__ == CLASSES[context.backend]
        assert type(impl).__module__ == f"torchcomms._comms_{context.backend}"
    with failures.case("names"):
        assert comm.get_backend() == context.backend
        assert comm.get_backend_version() == context.row.version()
    with failures.case("address"):
        if context.backend in ("nccl", "ncclx"):
            assert impl.get_nccl_comm_ptr() != 0
    with failures.case("abort"):
        assert comm.is_abort_supported() is context.row.aborts
    with failures.case("notes"):
        notes = comm.describe()["notes"]
        assert notes["replays of graphs"] == "timeouts of operations are watched"
        assert "compared when they are late" in notes["side channel"]
    return failures.texts


@vendors
def test_each_vendor_has_its_class_and_tells_its_librarys_version(world):
    check_context(world, described)


def halves(context):
    """All ranks split together; the child is called as it was asked for."""
    comm, failures = context.comm, Failures()
    mine = [r for r in range(context.size) if r % 2 == context.rank % 2][::-1]
    child = comm.split(mine, "parity")
    with failures.case("members"):
        assert (child.get_rank(), child.get_size()) == (mine.index(context.rank), len(mine))
        if context.backend != "ncclx":  # whose names have more in them
            assert child.get_name() == "parity"
        assert child.get_backend() == comm.get_backend()
    tensor = torch.tensor([float(context.rank)])
    child.all_reduce(tensor, ReduceOp.SUM, False)
    with failures.case("sum"):
        assert tensor.item() == sum(mine)
    child.finalize()
    nobody = comm.split([0] if context.rank == 0 else [], "one")
    with failures.case("left out"):
        assert (nobody is None) is (context.rank != 0)
    assert_alive(comm)
    return failures.texts


@vendors
def test_all_ranks_split_into_groups_that_keep_their_names(world):
    check_context(world, halves)


def gathered_again(context):
    """Prepared once, run with what is there then, synchronous or not."""
    comm, size, rank = context.comm, context.size, context.rank
    failures, fired = Failures(), []
    hook = comm.register_pre_hook(lambda name, op_id, args: fired.append(name))
    output = torch.zeros(size * 3, device=context.device)
    handle = comm.all_gather_p_init(output)
    for turn in range(4):
        mine = torch.full((3,), float(10 * turn + rank), device=context.device)
        comm.all_gather_p_exec(handle, mine, turn % 2 == 0, timeout=30.0).wait()
        with failures.case("turn", turn):
            assert output.tolist() == [float(10 * turn + r) for r in range(size) for _ in range(3)]
    wrong = {
        "elements": lambda: comm.all_gather_p_exec(handle, torch.zeros(2), False),
        "dtype": lambda: comm.all_gather_p_exec(handle, torch.zeros(3).int(), False),
        "divide": lambda: comm.all_gather_p_init(torch.zeros(size * 3 + 1)),
        "contiguous": lambda: comm.all_gather_p_init(torch.zeros(3, size * 2).t()),
    }
    for word, wrong_call in wrong.items():
        if context.device.type == "cpu":
            with failures.case(word), refused(ValueError, word):
                wrong_call()
    comm.all_gather_p_free(handle)
    with failures.case("freed"), refused(ValueError, "freed"):
        comm.all_gather_p_exec(handle, output[:3], False)
    with failures.case("hooks"):
        assert fired == []
    hook.remove()
    assert_alive(comm)
    return failures.texts


@vendors
def test_a_prepared_all_gather_runs_any_number_of_times(world):
    check_context(world, gathered_again)


def wrong_factors(context):
    """Refused on every rank before anything is sent."""
    failures, comm = Failures(), context.comm
    for data, factor in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float64),
        (torch.int64, torch.int32),
        (torch.bool, torch.bool),
    ):
        op = ReduceOp.PREMUL_SUM(torch.ones(1, dtype=factor))
        with failures.case(data, factor), refused(ValueError, "PREMUL_SUM", "dtype"):
            comm.all_reduce(torch.ones(4, dtype=data), op, False)
    assert_alive(comm)
    return failures.texts


@vendors
def test_a_factor_has_the_dtype_of_the_data(world):
    check_context(world, wrong_factors)


def bitwise(context):
    failures, comm = Failures(), context.comm
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        with failures.case(op), refused(torchcomms.Unsupported, "reduction", op.type.name):
            comm.all_reduce(torch.ones(4, dtype=torch.int64), op, False)
    assert_alive(comm)
    return failures.texts


@vendors
def test_bitwise_reductions_are_refused(world):
    check_context(world, bitwise)


def exchanged(context):
    """One way there is for the library's unique id, under two names."""
    failures = Failures()
    variable = f"TORCHCOMM_{context.backend.upper()}_BOOTSTRAP_UNIQUEID_EXCHANGE_METHOD"
    for method in ("auto", "tcpstore"):
        with failures.case(method), environment(**{variable: method}):
            comm = context.new_comm()
            assert_alive(comm)
            comm.finalize()
    with (
        failures.case("another one"),
        environment(**{variable: "carrier pigeon"}),
        refused(RuntimeError, f"{variable}='carrier pigeon'", "auto or tcpstore"),
    ):
        context.new_comm()
    return failures.texts


@vendors
def test_the_unique_id_goes_by_the_store_and_by_nothing_else(world):
    check_context(world, exchanged)


NUMBERS = (
    "blocking", "cgaClusterSize", "cga_cluster_size", "minCTAs", "min_ctas", "maxCTAs", "max_ctas",
    "splitShare", "split_share", "trafficClass", "traffic_class", "collnetEnable",
    "collnet_enable", "CTAPolicy", "cta_policy", "shrinkShare", "shrink_share", "nvlsCTAs",
    "nvls_ctas", "nChannelsPerNetPeer", "n_channels_per_net_peer", "nvlinkCentricSched",
    "nvlink_centric_sched",
)  # fmt: skip
TEXTS = ("netName", "net_name", "commName", "comm_name")


def configured(context):
    failures = Failures()
    for key in NUMBERS:
        for text in ("many", "1.5", "1 "):
            with failures.case(key, text), refused(ValueError, f"='{text}'", "whole number"):
                context.new_comm(hints={key: text})
    with failures.case("unset"):
        comm = context.new_comm(hints=dict.fromkeys(NUMBERS + TEXTS, "None"))
        assert_alive(comm)
        comm.finalize()
    return failures.texts


@vendors
def test_numbers_of_the_librarys_configuration_are_whole_in_either_spelling(world):
    check_context(world, configured)


def asked_at_the_end(context):
    failures, comm = Failures(), context.new_comm()
    with failures.case("before"):
        assert (comm.get_rank(), comm.get_size()) == (context.rank, context.size)
    comm.finalize()
    for ask in (comm.get_rank, comm.get_size):
        with failures.case(ask.__name__), refused(torchcomms.CommFinalized, "not initialized"):
            ask()
    return failures.texts


@vendors
def test_rank_and_size_are_not_told_after_finalize(world):
    check_context(world, asked_at_the_end)


def aborted(context):
    comm = context.new_comm("to_be_aborted", abort_process_on_timeout_or_error=False)
    comm.abort()
    failures = Failures()
    with failures.case("state"):
        assert comm.is_aborted()
    with failures.case("next call"), pytest.raises(torchcomms.Aborted):
        comm.barrier(False)
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("nccl", "ncclx", "rccl"))
def test_abort_ends_this_communicator_and_no_other(world):
    check_context(world, aborted)
    world.run(assert_alive)


def memory(context):
    """Registration changes nothing but what the library knows."""
    comm, failures = context.comm, Failures()
    tensor = torch.full((1000,), float(context.rank))
    comm.tensor_register(tensor)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    with failures.case("sum"):
        assert bool((tensor == sum(range(context.size))).all())
    comm.tensor_deregister(tensor)
    with failures.case("once"), pytest.raises(torchcomms.InvalidArgument, match="not registered"):
        comm.tensor_deregister(tensor)
    with failures.case("allocator"):
        allocator = comm.get_mem_allocator()
        assert allocator is torchcomms.get_mem_allocator(context.backend)
        assert allocator is comm.mem_allocator
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(backends=("nccl", "ncclx", "rccl"))
def test_memory_is_registered_and_has_an_allocator(world):
    check_context(world, memory)


@pytest.mark.skipif(
    not hasattr(torch._C, "_cuda_CUDAAllocator"), reason="this torch has no GPU memory"
)
def test_the_allocator_of_a_library_for_gpus_is_one_that_torchs_pools_take():
    if reason := NCCL.missing():
        pytest.skip(reason)
    ((variable, library),) = NCCL.environment.items()
    library = library.replace("_nccl.so", "_nccl_device.so")
    forked(f"""
        import os, torch, torchcomms
        os.environ[{variable!r}] = {library!r}
        torchcomms._load_backend("nccl")
        allocator = torchcomms.get_mem_allocator("nccl")
        assert isinstance(allocator, torch._C._cuda_CUDAAllocator), allocator
        assert torchcomms.get_mem_allocator("nccl") is allocator
    """).expect_success()
