"""Every operation, compiled, gives what it gives eagerly."""

from __future__ import annotations

import torch
from torchcomms import ReduceOp

from tests.python.compiled.cases import case, compiled, counted, outs, ramp, same


def pairwise(comm, x):
    """Every rank sends to the next one and receives from the one before."""
    size, rank = comm.get_size(), comm.get_rank()
    got = torch.zeros_like(x)
    sent = comm.send(x, (rank + 1) % size, True)
    comm.recv(got, (rank - 1) % size, True).wait()
    sent.wait()
    return got


def in_place(method, *rest):
    def run(comm, x):
        getattr(comm, method)(x, *rest, False)
        return x

    return run


def into(method, rows, *rest):
    """`rows(size)` times the input's rows come out."""

    def run(comm, x):
        factor = rows(comm.get_size())
        out = x.new_zeros(int(x.size(0) * factor), x.size(1))
        getattr(comm, method)(out, x, *rest, True).wait()
        return out

    return run


def list_to_one(method, *rest):
    def run(comm, x):
        out = torch.zeros_like(x)
        inputs = [x * (i + 1) for i in range(comm.get_size())]
        getattr(comm, method)(out, inputs, *rest, False)
        return out

    return run


def one_to_list(method, *rest):
    def run(comm, x):
        lists = outs(comm, x)
        getattr(comm, method)(lists, x, *rest, True).wait()
        return torch.stack(lists)

    return run


def uneven(comm, x):
    size, rank = comm.get_size(), comm.get_rank()
    out = x.new_zeros(size * (rank + 1), x.size(1))
    splits = [i + 1 for i in range(size)]
    rows = torch.cat([x] * size)[: sum(splits)]
    comm.all_to_all_v_single(out, rows, [rank + 1] * size, splits, False)
    return out


def padded(comm, x):
    """Of two rows a rank one is exchanged: the others of the output stay."""
    size = comm.get_size()
    out = x.new_full((2 * size, x.size(1)), 7.0)
    comm.all_to_all_v_single(out, torch.cat([x] * size), [1] * size, [1] * size, False)
    return out


def lists(comm, x):
    out = outs(comm, x)
    comm.all_to_all(out, [x + i for i in range(comm.get_size())], False)
    return torch.stack(out)


def gathered(comm, x):
    """Ranks other than the root may pass a list of one tensor that nobody looks at."""
    out = outs(comm, x) if comm.get_rank() == 0 else [torch.zeros_like(x)]
    comm.gather(out, x, 0, False)
    return torch.stack(out)


def waited(comm, x):
    comm.barrier(False)
    comm.barrier(async_op=True).wait()
    return x + 1


OPERATIONS = {
    "send recv": pairwise,
    "broadcast": in_place("broadcast", 1),
    "all_reduce": in_place("all_reduce", ReduceOp.SUM),
    "all_reduce max": in_place("all_reduce", ReduceOp.MAX),
    "all_reduce premul": in_place("all_reduce", ReduceOp.PREMUL_SUM(0.5)),
    "reduce": in_place("reduce", 0, ReduceOp.SUM),
    "all_gather": one_to_list("all_gather"),
    "all_gather_v": one_to_list("all_gather_v"),
    "all_gather_single": into("all_gather_single", lambda size: size),
    "reduce_scatter": list_to_one("reduce_scatter", ReduceOp.AVG),
    "reduce_scatter_v": list_to_one("reduce_scatter_v", ReduceOp.SUM),
    "reduce_scatter_single": into("reduce_scatter_single", lambda size: 1 / size, ReduceOp.SUM),
    "all_to_all_single": into("all_to_all_single", lambda size: 1),
    "all_to_all_v_single": uneven,
    "all_to_all_v_single padded": padded,
    "all_to_all": lists,
    "scatter": list_to_one("scatter", 1),
    "gather": gathered,
    "gather_single": into("gather_single", lambda size: size, 0),
    "barrier": waited,
}


@case
def every_operation_gives_what_it_gives_eagerly(comm, backend):
    """One graph of all operations; equal results, equal changes, in the same order."""

    def everything(comm, inputs):
        return [run(comm, x) for run, x in zip(OPERATIONS.values(), inputs, strict=True)]

    def run(function):
        inputs = [ramp(comm) + i for i in range(len(OPERATIONS))]
        issued = []
        handle = comm.register_pre_hook(lambda name, op_id, args: issued.append(str(name)))
        results = function(comm, inputs)
        handle.remove()
        return results, inputs, issued

    want = run(everything)
    function, compilations = counted(everything, backend)
    for _ in range(2):
        got = run(function)
        same(got[:2], want[:2])
        assert got[2] == want[2], "other operations, or another order"
    assert compilations() == 1


def rows_of(comm, tensor):
    return [tensor[i] for i in range(comm.get_size())]


PARTS = {
    "a row": lambda comm, whole, x: comm.all_reduce(whole[1], ReduceOp.SUM, True).wait(),
    "rows": lambda comm, whole, x: comm.all_gather(rows_of(comm, whole), x, True).wait(),
    "unbound": lambda comm, whole, x: comm.all_gather(whole.unbind(0), x, True).wait(),
    "exchanged": lambda comm, whole, x: comm.all_to_all(
        rows_of(comm, whole), [x + i for i in range(comm.get_size())], True
    ).wait(),
    "some rows": lambda comm, whole, x: comm.all_reduce(whole[1:], ReduceOp.SUM, True).wait(),
    "the only row": lambda comm, whole, x: comm.broadcast(whole[None][0], 1, True).wait(),
    "flat": lambda comm, whole, x: comm.all_reduce(whole.view(-1), ReduceOp.SUM, True).wait(),
}


@case
def parts_of_a_tensor_are_there_after_the_wait(comm, backend):
    """An asynchronous operation on a view changes the tensor that it is a view of."""

    def everything(comm, wholes, x):
        for run, whole in zip(PARTS.values(), wholes, strict=True):
            run(comm, whole, x)
        return [whole.sum(0) + x for whole in wholes]

    def run(function):
        wholes = [ramp(comm, comm.get_size() * 4).reshape(-1, 12) + i for i in range(len(PARTS))]
        return function(comm, wholes, torch.arange(12.0) + 100 * comm.get_rank()), wholes

    same(run(compiled(everything, backend)), run(everything))
