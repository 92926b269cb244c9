"""Operations inside CUDA graphs: captured once, replayed at will."""

from __future__ import annotations

import ctypes
import gc
import time

import pytest
import torch
from torchcomms import ReduceOp

from tests.gpu.test_streams import busy, total
from tests.harness.cases import Failures, assert_alive, check, check_context
from tests.harness.operations import MESSAGES, OPERATIONS, call

pytestmark = pytest.mark.worlds(device="cuda")
NUMEL = 1 << 14


def captured(body):
    """A graph of what `body` does, which has run once before, as every user warms up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def replays(comm, async_op):
    """Inputs that change between replays: nothing of the first run is kept."""
    failures, rank, size = Failures(), comm.get_rank(), comm.get_size()
    given, tensor = torch.zeros(NUMEL), torch.zeros(NUMEL)

    def body():
        tensor.copy_(given)
        comm.all_reduce(tensor, ReduceOp.SUM, async_op).wait()
        tensor.mul_(2)

    graph = captured(body)
    for replay in range(5):
        given.fill_(float(replay + rank + 1))
        graph.replay()
        with failures.case("replay", replay):
            want = 2 * (total(size) + size * replay)
            assert tensor.min().item() == tensor.max().item() == want
    assert_alive(comm)
    return failures.texts


@pytest.mark.parametrize("async_op", [False, True])
def test_replays_reduce_what_is_there_then(world, async_op):
    check(world, replays, async_op)


def everything(comm):
    """Every operation in one graph; each replay writes all outputs anew."""
    failures, rank, size = Failures(), comm.get_rank(), comm.get_size()
    tensors: dict[tuple[str, str], torch.Tensor] = {}

    def body():
        for name in OPERATIONS:
            if name in MESSAGES:
                continue

            def make(slot, shape, name=name):
                return tensors.setdefault((name, slot), torch.full(shape, rank + 1.0))

            call(comm, name, name.startswith("all"), make).wait()

    graph = captured(body)
    for replay in range(3):
        for tensor in tensors.values():
            tensor.fill_(rank + 1.0)
        graph.replay()
        for name, slot, want in (
            ("all_reduce", "tensor", [total(size)]),
            ("broadcast", "tensor", [1.0]),
            ("all_gather_single", "output", [r + 1.0 for r in range(size)]),
            ("reduce_scatter_single", "output", [total(size)]),
            ("all_to_all_single", "output", [r + 1.0 for r in range(size)]),
            ("scatter", "output_tensor", [1.0]),
        ):
            with failures.case(name, replay):
                rows = tensors[name, slot].reshape(len(want), -1)
                assert [row.max().item() for row in rows] == want
                assert [row.min().item() for row in rows] == want
    assert_alive(comm)
    return failures.texts


@pytest.mark.worlds(needs=("all_in_captures",))
def test_every_collective_may_be_captured(world):
    check(world, everything)


def nodes_of(body):
    """How many nodes a graph of what `body` does has."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        body()
    count = ctypes.c_size_t()
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    assert ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(handle, None, ctypes.byref(count)) == 0
    return count.value


def marks(context):
    """What limits take: nodes that a graph has beyond one without limits."""
    off = {"enable_cuda_graph_support": "false"}
    comms = [context.new_comm(), context.new_comm(hints=off)]
    tensor, more = torch.zeros(NUMEL), []
    for between in (lambda: None, lambda: tensor.mul_(2)):
        counts = []
        for comm in comms:

            def body(comm=comm, between=between):
                for _ in range(10):
                    # By the library alone: kernels of ours watch their limits themselves.
                    hints = {"ncclx::algorithm": "nccl"}
                    comm.all_reduce(tensor, ReduceOp.MAX, False, hints=hints)
                    between()

            body()
            counts.append(nodes_of(body))
        more.append(counts[0] - counts[1])
    for comm in comms:
        comm.finalize()
    return more


@pytest.mark.worlds(backends=("nccl", "nccl-lazy", "ncclx"))
def test_operations_in_a_row_have_one_mark_each_and_one_more(world):
    """Apart from each other each has one of its beginning, too."""
    assert world.run_context(marks) == [[11, 20]] * world.size


def messages(comm):
    rank, size = comm.get_rank(), comm.get_size()
    mine, got = torch.full((NUMEL,), float(rank)), torch.zeros(NUMEL)

    def body():
        batch = comm.batch_op_create()
        batch.send(mine, (rank + 1) % size)
        batch.recv(got, (rank - 1) % size)
        batch.issue(False)

    graph = captured(body)
    values = []
    for replay in range(3):
        mine.fill_(float(rank + 10 * replay))
        graph.replay()
        values.append(got.max().item())
    return values


@pytest.mark.worlds(needs=("all_in_captures",))
def test_messages_may_be_captured(world):
    for rank, values in enumerate(world.run(messages)):
        left = (rank - 1) % world.size
        assert values == [left + 10.0 * replay for replay in range(3)]


def several(context):
    """Two graphs with two communicators on two streams each, replayed in turn beside eager calls;
    then the graphs go, and the communicators after them."""
    failures, rank, size = Failures(), context.rank, context.size
    comms = [context.new_comm(), context.new_comm()]
    tensors = [torch.zeros(NUMEL), torch.zeros(NUMEL)]

    def body():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        comms[0].all_reduce(tensors[0], ReduceOp.SUM, False)
        with torch.cuda.stream(side):
            comms[1].all_reduce(tensors[1], ReduceOp.MAX, False)
        torch.cuda.current_stream().wait_stream(side)

    graphs = [captured(body), captured(body)]
    for replay in range(6):
        for tensor in tensors:
            tensor.fill_(rank + 1.0)
        graphs[replay % 2].replay()
        eager = torch.ones(5)
        comms[replay % 2].all_reduce(eager, ReduceOp.SUM, replay % 3 == 0).wait()
        with failures.case("replay", replay):
            assert tensors[0].max().item() == tensors[0].min().item() == total(size)
            assert tensors[1].max().item() == tensors[1].min().item() == size
            assert eager.tolist() == [float(size)] * 5
    del graphs
    gc.collect()
    torch.cuda.synchronize()
    for comm in comms:
        comm.finalize()
    return failures.texts


def test_several_graphs_streams_and_communicators(world):
    check_context(world, several)


def beside_each_other(context):
    """Two graphs of one communicator and its calls, on a stream each, launched without waiting for
    anything; on each rank another stream is late."""
    failures, rank, size = Failures(), context.rank, context.size
    comm = context.new_comm()
    one, two, eager = torch.zeros(NUMEL), torch.zeros(100), torch.zeros(7)
    graphs = [
        captured(lambda: comm.all_reduce(one, ReduceOp.SUM, False)),
        captured(lambda: comm.all_reduce(two, ReduceOp.MAX, False)),
    ]
    streams = [torch.cuda.Stream() for _ in range(3)]
    for turn in range(20):
        for tensor in (one, two, eager):
            tensor.fill_(rank + 1.0)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[(rank + turn) % 3]):
            torch.cuda._sleep(10_000_000)
        for graph, stream in zip(graphs, streams, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            comm.all_reduce(eager, ReduceOp.SUM, turn % 2 == 0).wait()
        with torch.cuda.stream(streams[1]):
            graphs[0].replay()
        torch.cuda.synchronize()
        with failures.case("turn", turn):
            assert one.min().item() == one.max().item() == size * total(size)
            assert two.min().item() == two.max().item() == size
            assert eager.tolist() == [total(size)] * 7
    assert_alive(comm)
    del graphs
    comm.finalize()
    return failures.texts


def test_graphs_on_several_streams_and_calls_run_in_the_order_of_their_launches(world):
    check_context(world, beside_each_other)


def with_graphs(context):
    """Free memory, MiB, after each communicator that was finalized before its graph went."""
    free, tensor = [], torch.zeros(NUMEL)
    for cycle in range(5):
        comm = context.new_comm()
        graph = captured(lambda comm=comm: comm.all_reduce(tensor, ReduceOp.SUM, False))
        graph.replay()
        torch.cuda.synchronize()
        comm.finalize()
        del graph, comm
        gc.collect()
        context.meet(f"after cycle {cycle}")
        deadline = time.monotonic() + 10
        while True:
            now = torch.cuda.mem_get_info()[0] >> 20
            if not free or now >= free[0] or time.monotonic() > deadline:
                break
        free.append(now)
    return free


@pytest.mark.serial  # what else runs on the device takes memory, too
@pytest.mark.worlds(backends=("ncclx", "ctran"))
def test_memory_of_kernels_comes_back_with_the_last_graph(world):
    for free in world.run_context(with_graphs):
        assert free[0] - free[-1] < 64, f"MiB after each: {free}"


def grows_in_a_capture(context):
    """The first large collective of a communicator is captured, with no run before."""
    failures, rank, size = Failures(), context.rank, context.size
    comm = context.new_comm("growing", hints={"ctran::workspace": "growing"})
    tensor = torch.zeros(1 << 18)
    comm.all_reduce(torch.ones(4), ReduceOp.SUM, False)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        comm.all_reduce(tensor, ReduceOp.SUM, False)
    for replay in range(3):
        tensor.fill_(rank + 1.0 + replay)
        graph.replay()
        with failures.case("replay", replay):
            assert tensor.eq(total(size) + size * replay).all()
    tensor.fill_(rank + 1.0)
    comm.all_reduce(tensor, ReduceOp.SUM, False)
    with failures.case("a call afterwards"):
        assert tensor.eq(total(size)).all()
    with failures.case("memory"):
        assert comm.describe()["memory"]["kernels, later"] > 0
    del graph
    comm.finalize()
    return failures.texts


@pytest.mark.worlds(backends=("ncclx", "ctran"), needs=("kernel_tuning",))
def test_a_communicator_grows_for_what_is_captured(world):
    check_context(world, grows_in_a_capture)


KERNEL, MEMCPY, WAITS, RECORDS = 0, 1, 6, 7  # kinds of nodes, by CUDA's driver


def kinds_of_nodes(body):
    """The kinds of the nodes of a graph of what `body` does, and the names of its kernels."""
    driver = ctypes.CDLL("libcuda.so.1")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        body()
    count, handle = ctypes.c_size_t(), ctypes.c_void_p(graph.raw_cuda_graph())
    assert driver.cuGraphGetNodes(handle, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)) == 0
    kinds, names = [], []
    for node in nodes:
        kind, name = ctypes.c_int(), ctypes.c_char_p()
        assert driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        kinds.append(kind.value)
        if kind.value != KERNEL:
            continue
        parameters = (ctypes.c_void_p * 16)()  # begins with the function
        assert driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), parameters) == 0
        function = ctypes.c_void_p(parameters[0])
        assert driver.cuFuncGetName(ctypes.byref(name), function) == 0
        names.append(name.value.decode())
    return kinds, names


def nodes_of_kernels(comm):
    """Of two operations that kernels of ours run."""
    size = comm.get_size()
    tensor, gathered = torch.zeros(NUMEL), torch.zeros(size * NUMEL)

    def body():
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        comm.all_gather_single(gathered, tensor, True)

    captured(body)
    return kinds_of_nodes(body)


@pytest.mark.worlds(backends=("ncclx", "ctran"), needs=("all_in_captures",))
def test_an_operation_of_kernels_is_one_node(world):
    for kinds, names in world.run(nodes_of_kernels):
        assert len(names) == 2, names
        assert "AllReduce" in names[0], names
        assert "AllGather" in names[1], names
        assert MEMCPY not in kinds
        assert kinds.count(WAITS) == kinds.count(RECORDS) == 1


def beside_a_capture(context):
    """The watchdog looks after an eager operation while this thread captures in global mode, where
    a query of the runtime by anybody would end the capture."""
    failures, rank = Failures(), context.rank
    eager, other = context.new_comm(), context.new_comm()
    side, late, tensor = torch.cuda.Stream(), torch.zeros(8), torch.zeros(8)
    other.all_reduce(tensor, ReduceOp.SUM, False)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(5):
            busy()
        work = eager.all_reduce(late, ReduceOp.SUM, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        for _ in range(200):
            other.all_reduce(tensor, ReduceOp.MAX, False)
    tensor.fill_(float(rank))
    graph.replay()
    with failures.case("value"):
        assert tensor.max().item() == context.size - 1
    work.wait()
    torch.cuda.synchronize()
    for comm in (eager, other):
        comm.finalize()
    return failures.texts


def test_no_watch_disturbs_a_capture(world):
    check_context(world, beside_a_capture)
