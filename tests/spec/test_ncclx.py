"""Backend ncclx: which collectives are kernels of ours, that they are right, what tells of it."""

from __future__ import annotations

import os
import warnings

import pytest
import torch
import torchcomms
from torchcomms import ReduceOp

from tests.harness.backends import NCCLX
from tests.harness.cases import Failures, assert_alive, check_context, refused
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
    with failures.case("unknown key"), pytest.raises(RuntimeError, match="cannot be configured"):
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
    older = {"torchcomm::ncclx::high_priority_stream": "perhaps"}
    with failures.case("of a call"), pytest.raises(ValueError, match="high_priority_stream: 'perh"):
        context.comm.all_reduce(tensor(context, 5), ReduceOp.SUM, True, hints=older)
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


def on_device(context, values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype, device=context.comm.get_device())


def count(source, target, round_):
    """How many elements one rank has for another, in a round."""
    return (7 * source + 13 * target + 5 * round_ * (source + 2 * target + 1)) % 40 * (round_ + 1)


MOST = 20_000  # elements of a tensor: more than any round has


def part(source, target, round_, dtype):
    values = torch.arange(count(source, target, round_)) + 1000 * source + 100 * target + round_
    return (values % 120).to(dtype)


def exchanged(context, dtype, round_, async_op):
    """One exchange by counts on the device; what is beyond the parts stays as it was."""
    comm, rank, ranks = context.comm, context.rank, range(context.size)
    device = comm.get_device()
    sent = [count(rank, target, round_) for target in ranks]
    received = [count(source, rank, round_) for source in ranks]
    source = torch.zeros(MOST, dtype=dtype)
    source[: sum(sent)] = torch.cat([part(rank, target, round_, dtype) for target in ranks])
    output = torch.full((MOST,), 99, dtype=dtype, device=device)
    work = comm.get_backend_impl().device_alltoallv_single(
        output,
        source.to(device),
        on_device(context, received),
        on_device(context, sent),
        async_op,
    )
    work.wait()
    wanted = torch.full((MOST,), 99, dtype=dtype)
    wanted[: sum(received)] = torch.cat([part(one, rank, round_, dtype) for one in ranks])
    torch.testing.assert_close(output.cpu(), wanted.cpu(), rtol=0, atol=0)


def by_counts_on_the_device(context):
    failures = Failures()
    before = launches(context.comm)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128):
        for round_ in range(6):
            with failures.case(dtype, round_):
                exchanged(context, dtype, round_, async_op=round_ % 2 == 1)
    with failures.case("all are kernels"):
        assert launches(context.comm) - before == 5 * 6
    return failures.texts


def test_device_alltoallv_moves_what_the_counts_say(world):
    check_context(world, by_counts_on_the_device)


def replayed_with_other_counts(context):
    comm, rank, size = context.comm, context.rank, context.size
    device = comm.get_device()
    if device.type != "cuda":
        return []  # tests/cpp/backends/ncclx has its replays
    source = torch.arange(MOST, dtype=torch.float32, device=device) + rank * MOST
    output = torch.zeros(MOST, device=device)
    sent = torch.zeros(size, dtype=torch.int64, device=device)
    received = torch.zeros(size, dtype=torch.int64, device=device)
    comm.barrier(False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        comm.get_backend_impl().device_alltoallv_single(output, source, received, sent, False)
    for round_ in range(5):
        sent.copy_(on_device(context, [count(rank, target, round_) for target in range(size)]))
        received.copy_(on_device(context, [count(one, rank, round_) for one in range(size)]))
        output.fill_(-1)
        graph.replay()
        parts = []
        for one in range(size):
            begin = one * MOST + sum(count(one, target, round_) for target in range(rank))
            parts.append(torch.arange(begin, begin + count(one, rank, round_)).float())
        wanted = torch.cat(parts)
        torch.testing.assert_close(output[: len(wanted)].cpu(), wanted.cpu(), rtol=0, atol=0)
        assert bool((output[len(wanted) :] == -1).all())
    return []


def test_device_alltoallv_reads_the_counts_of_each_replay(world):
    check_context(world, replayed_with_other_counts)


def wrong_calls(context):
    """Refused on every rank before anything is sent."""
    failures, comm, size = Failures(), context.comm, context.size
    impl, device = comm.get_backend_impl(), comm.get_device()
    floats, good = torch.zeros(size, device=device), on_device(context, [1] * size)
    for name, call in {
        "int32 sizes": (floats, floats.clone(), good.int(), good),
        "float sizes": (floats, floats.clone(), good, good.float()),
        "too many sizes": (floats, floats.clone(), on_device(context, [1] * (size + 1)), good),
        "dtypes": (floats, floats.double(), good, good),
    }.items():
        with failures.case(name), refused(RuntimeError, "expected"):
            impl.device_alltoallv_single(*call, False)
    one, seed = torch.zeros(1, device=device), on_device(context, [1])
    for name, call in {
        "op": (one, floats, ReduceOp.MAX, seed),
        "dtype": (one.double(), floats.double(), ReduceOp.SUM, seed),
        "size": (one, torch.zeros(size + 1, device=device), ReduceOp.SUM, seed),
        "seed's dtype": (one, floats, ReduceOp.SUM, seed.int()),
        "seeds": (one, floats, ReduceOp.SUM, on_device(context, [1, 2])),
    }.items():
        with failures.case(name), refused(RuntimeError, "expected"):
            impl.reduce_scatter_quantized(*call, False)
    assert_alive(comm)
    return failures.texts


def test_what_only_kernels_do_is_refused_with_wrong_tensors(world):
    check_context(world, wrong_calls)


def forked_calls(context):
    failures, size = Failures(), context.size
    impl, counts = context.comm.get_backend_impl(), torch.tensor([1] * context.size)
    calls = {
        "device_alltoallv_single": (torch.zeros(size), torch.ones(size), counts, counts),
        "reduce_scatter_quantized": (torch.zeros(1), torch.ones(size), ReduceOp.SUM, counts[:1]),
    }
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork() where there are threads
        child = os.fork()
    if child == 0:
        try:
            for name, arguments in calls.items():
                try:
                    getattr(impl, name)(*arguments, False)
                except torchcomms.ForkedProcess as error:
                    os.write(write, f"{error}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        lines = told.read().splitlines()
    os.waitpid(child, 0)
    with failures.case("lines"):
        assert len(lines) == len(calls), lines
    for name, line in zip(calls, lines, strict=False):
        with failures.case(name):
            assert line.startswith(name), line
    assert_alive(context.comm)
    return failures.texts


@pytest.mark.worlds(device="cpu")
def test_what_only_kernels_do_is_named_in_a_forked_child(world):
    check_context(world, forked_calls)


def impossible(context):
    failures, size = Failures(), context.size
    for name, spoiled in {
        "negative": [-1] + [1] * (size - 1),
        "beyond": [MOST] + [1] * (size - 1),
        "overflowing": [2**63 - 1] * size,
    }.items():
        comm = context.new_comm(f"impossible {name}", abort_process_on_timeout_or_error=False)
        device = comm.get_device()
        source, good = torch.ones(MOST, device=device), on_device(context, [1] * size)
        output = torch.zeros(MOST, device=device)
        sent = on_device(context, spoiled) if context.rank == 1 else good
        kind = torchcomms.InvalidArgument if context.rank == 1 else torchcomms.Mismatch
        with failures.case(name), refused(kind, "counts of rank 1 are invalid"):
            comm.get_backend_impl().device_alltoallv_single(
                output, source, good, sent, False
            ).wait_blocking()
        with failures.case(name, "afterwards"):
            assert comm.is_aborted()
            assert context.rank != 1 or not output.any()
        comm.finalize()
    return failures.texts


def test_impossible_counts_end_the_communicator_and_change_nothing(world):
    check_context(world, impossible)


def disagreeing(context):
    """A send may be over before its receiver finds it wrong: the next operation says so then."""
    failures, size = Failures(), context.size
    comm = context.new_comm("disagreeing", abort_process_on_timeout_or_error=False)
    source = torch.ones(MOST, device=comm.get_device())
    good = on_device(context, [1] * size)
    received = on_device(context, [2] + [1] * (size - 1)) if context.rank == 1 else good
    with failures.case("sizes"), refused(torchcomms.Mismatch, "different sizes"):
        comm.get_backend_impl().device_alltoallv_single(
            torch.zeros_like(source), source, received, good, False
        ).wait_blocking()
        comm.barrier(False).wait_blocking()
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(sizes=(2,))
def test_ranks_that_disagree_about_a_count_are_told(world):
    check_context(world, disagreeing)


def quantized(context):
    failures, comm, size, rank = Failures(), context.comm, context.size, context.rank
    impl, device = comm.get_backend_impl(), comm.get_device()

    def sums(values, seed, op=ReduceOp.SUM, async_op=False):
        output = torch.empty(values.numel() // size, device=device)
        impl.reduce_scatter_quantized(
            output, values, op, on_device(context, [seed]), async_op
        ).wait()
        return output.cpu()

    for numel in (1, 13, 1000, 70_001):
        exact = (torch.arange(size * numel, device=device) % 256 - 128 + rank).float()
        want = torch.empty(numel, device=device)
        comm.reduce_scatter_single(want, exact, ReduceOp.SUM, False, hints=BY_NCCL)
        with failures.case("what is a bfloat16 stays", numel):
            torch.testing.assert_close(sums(exact, 3), want.cpu(), rtol=0, atol=0)
        uneven = torch.sin(torch.arange(size * numel, device=device) + float(rank))
        comm.reduce_scatter_single(want, uneven, ReduceOp.SUM, False, hints=BY_NCCL)
        once = sums(uneven, 3, async_op=True)
        with failures.case("near", numel):
            # Of size - 1 roundings, each is off by less than 2^-7 of a value below 1.
            assert float((once - want.cpu()).abs().max()) < (size - 1) / 128
        with failures.case("the same seed", numel):
            torch.testing.assert_close(sums(uneven, 3), once, rtol=0, atol=0)
        with failures.case("average", numel):
            average = sums(uneven, 3, ReduceOp.AVG)
            torch.testing.assert_close(average, once / size, rtol=0, atol=0)
        with failures.case("another seed", numel):
            assert numel < 1000 or not torch.equal(sums(uneven, 4), once)
    return failures.texts


def test_quantized_sums_are_near_and_of_their_seed(world):
    check_context(world, quantized)


def unbiased(context):
    """The mean error over seeds and elements is within six of its standard deviations.

    Between 1 and 2, bfloat16 have a distance of d = 2^-7. A rounding by chance has a variance of at
    most d^2 / 4, so the mean of n sums of size - 1 roundings one of at most d^2 (size - 1) / 4 n.
    """
    comm, size = context.comm, context.size
    device, seeds, numel = comm.get_device(), 60, 2000
    value = 1.3
    values = torch.full((size * numel,), value, device=device)
    total = torch.zeros(numel, dtype=torch.float64, device="cpu")
    output = torch.empty(numel, device=device)
    for seed in range(seeds):
        comm.get_backend_impl().reduce_scatter_quantized(
            output, values, ReduceOp.SUM, on_device(context, [seed * size + context.rank]), False
        )
        total += output.cpu().double()
    exact = float(values[0]) * size
    bound = 6 * 2**-7 / 2 * ((size - 1) / (seeds * numel)) ** 0.5
    assert abs(float(total.mean()) / seeds - exact) < bound
    assert not torch.equal(total / seeds, torch.full_like(total, exact))  # it is rounded at all
    return []


def test_quantized_sums_have_no_bias(world):
    check_context(world, unbiased)


def by_distwrap(context):
    from torchcomms import distwrap

    device = context.comm.get_device()
    patch = pytest.MonkeyPatch()
    if device.type == "cuda":
        distwrap.init_process_group(
            "ncclx",
            store=context.store("distwrap/quantized"),
            rank=context.rank,
            world_size=context.size,
            use_torchcomms=True,
        )
    else:  # torch's own part of the group, which would be nccl, needs a GPU
        patch.setattr("torchcomms.distwrap._collectives.comm_for", lambda *_: context.comm)
    try:
        output, seed = torch.empty(3, device=device), on_device(context, [5])
        values = torch.ones(3 * context.size, device=device)
        for op, want in ((distwrap.ReduceOp.SUM, context.size), (distwrap.ReduceOp.AVG, 1)):
            assert distwrap.reduce_scatter_quantized(output, values, op, seed) is None
            assert output.tolist() == [want] * 3
        work = distwrap.reduce_scatter_quantized(output, values, op, seed, async_op=True)
        work.wait()
        assert output.tolist() == [1] * 3
    finally:
        patch.undo()
        if device.type == "cuda":
            distwrap.destroy_process_group()
    return []


def test_distwrap_reaches_the_quantized_sum(world):
    check_context(world, by_distwrap)


def hooked(context):
    from torchcomms import _comms_ncclx

    device = context.comm.get_device()
    if device.type != "cuda":
        for _ in range(2):
            with refused(torchcomms.Unsupported, "caching allocator"):
                _comms_ncclx.init_caching_allocator_hook()
        return []
    for _ in range(2):
        _comms_ncclx.init_caching_allocator_hook()
    comm = context.new_comm("hooked")
    for megabytes in (1, 100, 300):
        values = torch.ones(megabytes << 18, device=device)  # in a segment of its own
        comm.all_reduce(values, ReduceOp.SUM, False)
        assert float(values[-1]) == context.size
        assert comm.describe()["memory"]["registered tensors"] >= values.nbytes
        del values
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert_alive(comm)
    comm.finalize()
    return []


def test_the_allocators_segments_are_registered_as_they_come_and_go(world):
    check_context(world, hooked)


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


DISAGREE = """
    import os, time, torch, torchcomms
    from tests.harness.odd_calls import calls

    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), "disagree",
                               abort_process_on_timeout_or_error=False)
    rank, size = comm.get_rank(), comm.get_size()
    began = time.monotonic()
    many, one = calls(comm, os.environ["ODD"])
    try:
        comm.barrier(False)  # whoever is still in it may hear of what the others have called since
        one() if rank == size - 1 else many()
        comm.barrier(False)  # whoever had what it called for learns of it here
    except torchcomms.Mismatch as error:
        took = time.monotonic() - began
        assert took < 10, took  # the limit is 10 minutes; on an idle machine it is milliseconds
        if os.environ["TORCHCOMM_SIDE_CHANNEL"] == "1":
            assert f"rank {size - 1} calls " in str(error), error
            # Of three ranks one may be too late to tell which of the others is alone.
            assert error.peer in (size - 1, -1), error
        else:
            assert "has called something else" in str(error), error
            assert error.peer not in (rank, -1), error
    else:
        raise AssertionError("nobody found that the ranks disagree")
    assert comm.is_aborted()
    comm.finalize()
"""


@needs_ncclx
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "odd", ["count", "dtype", "operation", "barrier", "root", "reduction", "left out"]
)
def test_ranks_that_disagree_are_told_by_their_kernels(free_port, odd, size):
    variables = {"ODD": odd, "TORCHCOMM_SIDE_CHANNEL": "1", **NCCLX.environment}
    for rank in ranks(DISAGREE, size, free_port, **variables):
        rank.expect_success()


@needs_ncclx
@pytest.mark.parametrize("odd", ["count", "reduction"])
def test_ranks_that_disagree_are_told_without_a_side_channel(free_port, odd):
    variables = {"ODD": odd, "TORCHCOMM_SIDE_CHANNEL": "0", **NCCLX.environment}
    for rank in ranks(DISAGREE, 3, free_port, **variables):
        rank.expect_success()


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
        assert "nccl alone (rank 1: cannot load the kernel library: /no/such/library.so" in why, why
        comm.finalize()
    """
    for rank in ranks(program, 2, free_port, **NCCLX.environment):
        rank.expect_success()
