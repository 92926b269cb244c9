"""What a compiled function may be given, or may ask: communicators, windows, batches, sizes."""

from __future__ import annotations

import torch
import torchcomms
from torchcomms import ReduceOp, Timeout, functional

from tests.python.compiled.cases import case, compiled, counted, ramp, same


@case
def an_operation_whose_result_is_not_used_still_runs(comm, backend):
    def step(comm, x):
        comm.all_reduce(x * 2, ReduceOp.SUM, False)
        functional.all_reduce(comm, x)
        comm.barrier(False)
        return x + 1

    issued = []
    handle = comm.register_pre_hook(lambda name, op_id, args: issued.append(str(name)))
    compiled(step, backend)(comm, torch.ones(3))
    handle.remove()
    assert [name.split(".")[-1] for name in issued] == ["all_reduce", "all_reduce", "barrier"]


@case
def answers_about_the_communicator_are_constants(comm, backend):
    def step(x):
        assert comm.get_name() == "compiled"
        return x * comm.get_size() + comm.get_rank(), str(comm.get_device())

    got = compiled(step, backend)(torch.ones(2))
    same(got[0], torch.ones(2) * comm.get_size() + comm.get_rank())
    assert got[1] == "cpu"


@case
def methods_that_are_no_operations_break_the_graph(comm, backend):
    def step(x):
        y = x * 2
        child = comm.split(comm.get_ranks(), "inside")
        child.all_reduce(y, ReduceOp.SUM, False)
        aborted = child.is_aborted()
        child.finalize()
        return y + int(aborted)

    got = torch.compile(step, backend=backend)(torch.ones(2))
    same(got, torch.full((2,), 2.0 * comm.get_size()))


@case
def recompiles_are_one_a_communicator(comm, backend):
    def step(comm, x):
        comm.all_reduce(x, ReduceOp.SUM, False)
        return x * comm.get_size()

    function, compilations = counted(step, backend)
    other = comm.split(list(range(comm.get_size())), "other")
    for group, count in ((comm, 1), (comm, 1), (other, 2), (other, 2), (comm, 2)):
        same(function(group, torch.ones(3)), torch.ones(3) * comm.get_size() ** 2)
        assert compilations() == count
    other.finalize()


@case
def another_size_takes_one_graph_for_all_sizes(comm, backend):
    def step(comm, x):
        out = x.new_empty(x.size(0) * comm.get_size())
        comm.all_gather_single(out, x, False)
        comm.all_reduce(out, ReduceOp.SUM, False)
        return out + 1

    function, compilations = counted(step, backend)
    for rows in (4, 6, 9, 12):
        x = torch.arange(float(rows)) + comm.get_rank()
        same(function(comm, x.clone()), step(comm, x.clone()))
    assert compilations() <= 2


@case
def parameters_have_defaults_and_limits_are_timeouts(comm, backend):
    def step(x):
        comm.all_reduce(x, ReduceOp.SUM)
        comm.all_reduce(x, op=ReduceOp.SUM, timeout=Timeout(seconds=20), hints={"any": "thing"})
        comm.all_reduce(tensor=x, op=ReduceOp.PREMUL_SUM(0.5), async_op=True).wait()
        return x

    size = comm.get_size()
    same(compiled(step, backend)(torch.ones(2)), torch.ones(2) * size**3 / 2)


@case
def windows_are_arguments(comm, backend):
    del comm
    world = torchcomms.new_comm("ctran", torch.device("cpu"), "windows")
    rank, size = world.get_rank(), world.get_size()
    memory = torch.zeros(4 * size)
    window = world.new_window()
    window.tensor_register(memory)

    def step(window, x):
        window.put(x * 2, (rank + 1) % size, 4 * rank, False)
        window.signal((rank + 1) % size, async_op=True).wait()
        window.wait_signal((rank - 1) % size, False)
        mine = window.map_remote_tensor(rank)
        mine += window.get_size()  # a graph's own tensor: the window stays as it is
        return mine + torch.ones(list(window.shape), dtype=window.dtype, device=window.device)

    x = torch.arange(4.0) + rank
    function, compilations = counted(step, backend)
    for _ in range(2):
        got = function(window, x)
        before = (rank - 1) % size
        held = torch.zeros(4 * size)
        held[4 * before : 4 * before + 4] = 2 * (torch.arange(4.0) + before)
        same(memory, held)
        same(got, held + 16 * size + 1)
        world.barrier(False)
    assert compilations() == 1
    window.tensor_deregister()
    world.finalize()


@case
def batches_are_arguments(comm, backend):
    size, rank = comm.get_size(), comm.get_rank()

    def step(batch, x, out):
        mine = torch.zeros_like(x)
        batch.send(x * 2, (rank + 1) % size)
        batch.recv(out, (rank - 1) % size)
        batch.send(x * 3, (rank + 1) % size)
        batch.recv(mine, (rank - 1) % size)
        work = batch.issue(async_op=True)
        other = torch.sin(x)
        work.wait()
        return out + 1, mine * 2, other

    x = torch.arange(4.0) + rank
    function, compilations = counted(step, backend)
    for _ in range(3):
        out = torch.zeros(4)
        first, second, other = function(comm.batch_op_create(), x, out)
        before = torch.arange(4.0) + (rank - 1) % size
        same((out, first, second, other), (before * 2, before * 2 + 1, before * 6, torch.sin(x)))
    assert compilations() == 1


@case
def functional_collectives_stand_in_the_same_graphs(comm, backend):
    def step(comm, x):
        mean = functional.all_reduce(comm, x, "avg")
        comm.all_reduce(x, ReduceOp.SUM, False)
        return functional.all_gather(comm, mean).sum() + x.sum()

    x, y = ramp(comm), ramp(comm)
    same((compiled(step, backend)(comm, x), x), (step(comm, y), y))
